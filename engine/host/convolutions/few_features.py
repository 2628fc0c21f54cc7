"""Convolutions with few output features, such as a decoder's last layer, with columns of outputs in the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TypeVar

from engine.codelets.convolutions.few_features import LANES, MOST_FEATURES, most_rows, most_vectors
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.pixel_groups import LEAST_MULTIPLY_ADDS
from engine.host.work.few_features import FewFeatures, Reads, plane_bytes, window_bytes
from engine.program.building.builder import ProgramBuilder
from engine.program.building.copies import fill
from engine.program.convolution_size import Phase, has_sums
from engine.program.nest import Constant
from engine.program.program import Address, ComputeSet, Partition, Span, WorkEstimate

T = TypeVar("T")

WINDOW_BYTES = 192 << 10
"""Bytes of a unit's rows in scratch that fit in the second-level cache: a unit reads no more where possible."""
MOST_WINDOW_BYTES = 512 << 10
UNITS, LEAST_UNITS = 16, 4
"""The number of units to aim at, and the least with which no worker is idle."""
FILL_CYCLES, PRODUCT_CYCLES, STORE_CYCLES = 3.0, 0.7, 1.0
"""Cycles for a vector that is transposed, a multiply-add of vectors, and an element of a result."""


def few_cycles(draft: ConvolutionDraft) -> float | None:
    """Estimated cycles of lanes over columns of outputs; None if the convolution is not of this kind."""
    if not _is_possible(draft) or draft.multiply_adds < LEAST_MULTIPLY_ADDS:
        return None
    found = [_cycles(draft, each) for each in product(*draft.phases) if has_sums(each)]
    cycles = [each for each in found if each is not None]
    return sum(cycles) if len(cycles) == len(found) > 0 else None


def emit_few_features(builder: ProgramBuilder, draft: ConvolutionDraft) -> None:
    """Emits the compute sets of lanes over columns of outputs; positions that no tap reaches become zero."""
    combinations = list(product(*draft.phases))
    if any(not p.taps for each in combinations for p in each):
        fill(builder, f"{draft.name}.zero", draft.result, Constant("f32", "0.0"), draft.op_name)
    for number, each in enumerate(combinations):
        if has_sums(each):
            name = f"{draft.name}.{number}" if len(combinations) > 1 else draft.name
            _emit(builder, draft, each, name)


def _is_possible(draft: ConvolutionDraft) -> bool:
    """Whether a float32 convolution has few output features, contiguous input features, and columns read one by one."""
    numbers, left = draft.numbers, draft.left
    if draft.shape.element_type != "f32" or draft.groups != 1 or not 1 <= len(draft.window) <= 3:
        return False
    features = draft.shape.dimensions[numbers.output_feature_dimension]
    if not 1 <= features <= MOST_FEATURES or left.strides[numbers.input_feature_dimension] != 4:
        return False
    return all(phase.step == 1 for phase in draft.phases[-1]) and bool(left.shape.elements)


def _cycles(draft: ConvolutionDraft, phases: tuple[Phase, ...]) -> float | None:
    """Estimated cycles of a combination of phases; None where units are too few, or a unit's rows exceed the cache."""
    inputs, features, images = _features_and_images(draft)
    field, reads = [p.count for p in _three(phases, _ONE)], _reads(phases)
    rows = _unit_rows(images, inputs, features, field, reads)
    if rows is None:
        return None
    units = images * field[0] * -(-field[1] // rows)
    if units < LEAST_UNITS:
        return None
    plane = plane_bytes(field[2], reads[2].reach)
    filled = window_bytes(inputs * plane, len(reads[0].starts), reads[1], rows) / (4 * LANES) * units
    taps = prod(len(r.starts) for r in reads)
    products = images * field[0] * field[1] * -(-field[2] // LANES) * taps * inputs * features
    stored = images * prod(field) * features
    return FILL_CYCLES * filled + PRODUCT_CYCLES * products + STORE_CYCLES * stored


def _features_and_images(draft: ConvolutionDraft) -> tuple[int, int, int]:
    """Input features, output features and images."""
    numbers, outputs = draft.numbers, draft.shape.dimensions
    inputs = draft.left.shape.dimensions[numbers.input_feature_dimension]
    return inputs, outputs[numbers.output_feature_dimension], outputs[numbers.output_batch_dimension]


def _emit(builder: ProgramBuilder, draft: ConvolutionDraft, phases: tuple[Phase, ...], name: str) -> None:
    """Emits the compute set of a combination of phases."""
    left, right, target, numbers = draft.left, draft.right, draft.result, draft.numbers
    inputs, features, images = _features_and_images(draft)
    field, reads = tuple(p.count for p in _three(phases, _ONE)), _reads(phases)
    rows = _unit_rows(images, inputs, features, list(field), reads)
    assert rows is not None and len(field) == 3
    outputs = numbers.output_spatial_dimensions
    first = sum(p.first * target.strides[d] for p, d in zip(phases, outputs, strict=True))
    strides_c = [p.period * target.strides[d] for p, d in zip(phases, outputs, strict=True)]
    work = FewFeatures(
        Address(left.buffer, left.offset),
        Address(right.buffer, right.offset),
        Address(target.buffer, target.offset + first),
        images=images,
        inputs=inputs,
        features=features,
        sources=_three(draft.sources, 1),
        field=field,
        reads=reads,
        image_a=left.strides[numbers.input_batch_dimension],
        strides_a=_three([left.strides[d] for d in numbers.input_spatial_dimensions], 0),
        strides_b=_three([right.strides[d] for d in numbers.kernel_spatial_dimensions], 0),
        input_b=right.strides[numbers.kernel_input_feature_dimension],
        feature_b=right.strides[numbers.kernel_output_feature_dimension],
        image_c=target.strides[numbers.output_batch_dimension],
        strides_c=_three(strides_c, 0),
        feature_c=target.strides[numbers.output_feature_dimension],
        unit_rows=rows,
    )
    multiply_adds = images * prod(field) * features * inputs * prod(len(r.starts) for r in reads)
    compute_set = ComputeSet(
        name,
        work,
        work.unit_count,
        [Span(left.buffer), Span(right.buffer)],
        [Span(target.buffer, _partition(work))],
        WorkEstimate(multiply_adds=multiply_adds, element_type="f32"),
        draft.op_name,
    )
    builder.emit(compute_set)


def _partition(work: FewFeatures) -> Partition | None:
    """The elements that each unit writes, where these are contiguous and units have equally many rows."""
    slices, rows, columns = work.field
    row = 4 * work.features * columns
    dense = (*work.strides_c[1:], work.feature_c) == (row, 4 * work.features, 4)
    if slices > 1 or rows % work.unit_rows or not dense or work.image_c not in (row * rows, 0):
        return None
    whole = work.c.buffer.shape.elements == work.images * rows * columns * work.features
    return Partition(work.features * columns, work.images * rows, work.unit_rows) if whole else None


_ONE = Phase(0, 1, 1, 1, (0,), (0,))
"""The only position of a dimension that an image does not have."""


def _three(each: Sequence[T], missing: T) -> tuple[T, T, T]:
    """Values by slices, rows and columns, of which the first ones may be missing."""
    slices, rows, columns = (*[missing] * (3 - len(each)), *each)
    return slices, rows, columns


def _reads(phases: tuple[Phase, ...]) -> tuple[Reads, Reads, Reads]:
    slices, rows, columns = (Reads(p.step, p.starts, p.taps) for p in _three(phases, _ONE))
    return slices, rows, columns


def _unit_rows(
    images: int, inputs: int, features: int, field: list[int], reads: tuple[Reads, Reads, Reads]
) -> int | None:
    """Chooses a unit's rows for enough units, whole kernels and a window that fits; None if one row's does not fit."""
    row = inputs * plane_bytes(field[2], reads[2].reach)
    slices, rows = len(reads[0].starts), reads[1]
    if window_bytes(row, slices, rows, 1) > MOST_WINDOW_BYTES:
        return None
    most = max((n for n in range(1, field[1] + 1) if window_bytes(row, slices, rows, n) <= WINDOW_BYTES), default=1)
    together = most_rows(features, min(most_vectors(features), -(-field[2] // LANES)))
    wanted = max(together, -(-images * field[0] * field[1] // UNITS))
    chosen = min(most, wanted, field[1])
    return max(1, chosen // together * together) if chosen >= together else chosen
