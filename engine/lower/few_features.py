"""Convolutions with few output features, such as a decoder's last layer, with columns of outputs in the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TypeVar

from engine.codelets.few_sizes import LANES, MOST_FEATURES, most_rows, most_vectors
from engine.emit.nest import Constant
from engine.ir import ConvolutionDimensionNumbers, Instruction
from engine.lower.context import Context
from engine.lower.convolution_phases import Phase, convolution_size
from engine.lower.copies import fill
from engine.lower.overlapping import overlap_cycles
from engine.lower.pixel_groups import LEAST_MULTIPLY_ADDS, choose_group, contraction_cycles
from engine.lower.views import View, whole
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import Address, Buffer, ComputeSet, Partition, Span, WorkEstimate
from engine.program.work.few_features import FewFeatures, Reads, plane_bytes, window_bytes

T = TypeVar("T")

WINDOW_BYTES = 192 << 10
"""Of the rows that a unit reads, in scratch: they stay in the second-level cache."""
MOST_WINDOW_BYTES = 512 << 10
UNITS, LEAST_UNITS = 16, 4
"""Units to aim at, and fewer than which leave workers idle."""
FILL_CYCLES, PRODUCT_CYCLES, STORE_CYCLES = 3.0, 0.7, 1.0
"""Cycles for a vector that is transposed, a multiply-add of vectors, and an element of a result."""

WORTH = 0.9
"""Share of the estimated cycles of other ways below which this one is worth it: none of 23 was slower so."""


def has_few_features(
    instruction: Instruction, left: View, right: View, numbers: ConvolutionDimensionNumbers, phases: list[list[Phase]]
) -> bool:
    """Whether lanes over columns of outputs take clearly fewer cycles than other ways."""
    shape, features = instruction.array_shape, right.shape.dimensions[numbers.kernel_output_feature_dimension]
    if not _is_possible(instruction, left, numbers, phases):
        return False
    if shape.elements // features * right.shape.elements < LEAST_MULTIPLY_ADDS:
        return False
    found = [_cycles(instruction, left, numbers, each) for each in product(*phases) if _reaches(each)]
    cycles = [each for each in found if each is not None]
    group = choose_group(instruction, numbers, right.shape)
    others = contraction_cycles(instruction, numbers, right.shape, group.positions if group else 1)
    overlapping = overlap_cycles(instruction, left, right, numbers)
    best = others if overlapping is None else min(others, overlapping)
    return len(cycles) == len(found) > 0 and sum(cycles) < WORTH * best


def _reaches(phases: tuple[Phase, ...]) -> bool:
    """Whether there are such outputs, which taps reach."""
    return all(p.taps and p.count for p in phases)


def lower_few_features(
    context: Context,
    instruction: Instruction,
    operands: tuple[View, View],
    result: Buffer,
    numbers: ConvolutionDimensionNumbers,
    phases: list[list[Phase]],
) -> Buffer:
    """The result by lanes over columns of outputs; positions that no tap reaches become zero."""
    target, (left, right) = whole(result, instruction.array_shape), operands
    sizes = [left.shape.dimensions[d] for d in numbers.input_spatial_dimensions]
    combinations = list(product(*phases))
    if any(not p.taps for each in combinations for p in each):
        fill(context, f"{instruction.name}.zero", target, Constant("f32", "0.0"), instruction.op_name)
    for number, each in enumerate(combinations):
        if _reaches(each):
            size = convolution_size(instruction, each, sizes, right.shape)
            name = f"{instruction.name}.{number}" if len(combinations) > 1 else instruction.name
            _emit(context, instruction, (left, right, target), numbers, each, size, name)
    return result


def _is_possible(
    instruction: Instruction, left: View, numbers: ConvolutionDimensionNumbers, phases: list[list[Phase]]
) -> bool:
    """Whether an image has few output features, contiguous input features, and enough rows of outputs for units."""
    shape, window = instruction.array_shape, instruction["window"]
    groups = instruction["feature_group_count"], instruction["batch_group_count"]
    if shape.element_type != "f32" or groups != (1, 1) or not 1 <= len(window) <= 3:
        return False
    features = shape.dimensions[numbers.output_feature_dimension]
    if not 1 <= features <= MOST_FEATURES or left.strides[numbers.input_feature_dimension] != 4:
        return False
    return all(phase.step == 1 for phase in phases[-1]) and bool(left.shape.elements)


def _cycles(
    instruction: Instruction, left: View, numbers: ConvolutionDimensionNumbers, phases: tuple[Phase, ...]
) -> float | None:
    """Estimated cycles of a combination of phases; None where units are too few, or a unit's rows exceed the cache."""
    inputs = left.shape.dimensions[numbers.input_feature_dimension]
    features = instruction.array_shape.dimensions[numbers.output_feature_dimension]
    images = instruction.array_shape.dimensions[numbers.output_batch_dimension]
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


def _emit(
    context: Context,
    instruction: Instruction,
    arrays: tuple[View, View, View],
    numbers: ConvolutionDimensionNumbers,
    phases: tuple[Phase, ...],
    size: ConvolutionSize,
    name: str,
) -> None:
    """Emits the compute set of a combination of phases of a convolution of `arrays`: image, kernel and result."""
    left, right, target = arrays
    inputs = left.shape.dimensions[numbers.input_feature_dimension]
    features = instruction.array_shape.dimensions[numbers.output_feature_dimension]
    images = instruction.array_shape.dimensions[numbers.output_batch_dimension]
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
        sources=_three([left.shape.dimensions[d] for d in numbers.input_spatial_dimensions], 1),
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
        WorkEstimate(multiply_adds=multiply_adds, element_type="f32", convolution=size),
        instruction.op_name,
    )
    context.emit(compute_set)


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
    """Rows of a unit: enough units, whole kernels, and a window that fits; None if that of one row does not."""
    row = inputs * plane_bytes(field[2], reads[2].reach)
    slices, rows = len(reads[0].starts), reads[1]
    if window_bytes(row, slices, rows, 1) > MOST_WINDOW_BYTES:
        return None
    most = max((n for n in range(1, field[1] + 1) if window_bytes(row, slices, rows, n) <= WINDOW_BYTES), default=1)
    together = most_rows(features, min(most_vectors(features), -(-field[2] // LANES)))
    wanted = max(together, -(-images * field[0] * field[1] // UNITS))
    chosen = min(most, wanted, field[1])
    return max(1, chosen // together * together) if chosen >= together else chosen
