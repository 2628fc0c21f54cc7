"""Convolutions with few output features, such as a decoder's last layer, with columns of outputs in the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeVar

import numpy as np

from engine.codelets.convolutions.few_features import (
    LANES,
    MOST_FACTORS,
    MOST_FEATURES,
    RUNS,
    VECTOR,
    RowRun,
    most_rows,
    most_sums,
    most_vectors,
    whole_vectors,
)
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchLayout
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.pixel_groups import LEAST_MULTIPLY_ADDS
from engine.program.buffer import Address
from engine.program.building.builder import ProgramBuilder
from engine.program.building.copies import fill
from engine.program.convolution_size import Phase, has_sums
from engine.program.nest import Constant
from engine.program.program import ComputeSet, Partition, Span, WorkEstimate

Three = tuple[int, int, int]
"""Sizes by slices, rows and columns."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Taps along one dimension: output o reads input o * step + start for each of the `starts`, times kernel `taps`."""

    step: int
    starts: tuple[int, ...]
    taps: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Inputs from the first to the last that one output reads."""
        return max(self.starts) - min(self.starts) + 1


@dataclass(frozen=True, slots=True)
class FewFeatures(HostWork):
    """Outputs of `images` with `features` each, from images of `inputs` contiguous features. Strides are bytes.

    `sources` and `field` count slices, rows and columns of inputs and outputs; the step along columns is 1. A unit has
    `unit_rows` rows of one slice.
    """

    a: Address
    b: Address
    c: Address
    images: int
    inputs: int
    features: int
    sources: Three
    field: Three
    reads: tuple[Reads, Reads, Reads]
    image_a: int
    strides_a: Three
    strides_b: Three
    input_b: int
    feature_b: int
    image_c: int
    strides_c: Three
    feature_c: int
    unit_rows: int

    @property
    def unit_count(self) -> int:
        return self.images * self.field[0] * -(-self.field[1] // self.unit_rows)

    @property
    def run(self) -> RowRun:
        """The longest runs of neighbouring rows that have a kernel and into which the taps of a column divide."""
        starts = sorted(self.reads[1].starts)
        for rows in RUNS if self.reads[1].step == 1 else ():
            parts = [starts[at : at + rows] for at in range(0, len(starts), rows)]
            if rows * self.features <= MOST_FACTORS and all(p == list(range(p[0], p[0] + rows)) for p in parts):
                return RowRun(rows, self.features)
        return RowRun(1, self.features)

    def encode(self) -> Encoded:
        """The words of `Few`; scratch has the planes of the rows that a unit reads, and sums."""
        from engine.codelets.convolutions.few_features import Few, few_features

        slices, rows, columns = self.reads
        low = -min(columns.starts)
        begin, before = max(-low, 0), max(low, 0)
        inside = max(0, min(self.sources[2] - begin, self.field[2] - 1 + columns.reach - before))
        plane = plane_bytes(self.field[2], columns.reach, before + whole_vectors(inside))
        window = window_bytes(self.inputs * plane, len(slices.starts), rows, self.unit_rows)
        layout = ScratchLayout()
        layout.area(window)
        parameters = Few(
            a=self.a,
            b=self.b,
            c=self.c,
            inputs=self.inputs,
            **dict(zip(("slices", "rows", "columns"), self.field, strict=True)),
            **dict(zip(("image_a", "slice_a", "row_a"), (self.image_a, *self.strides_a[:2]), strict=True)),
            **dict(zip(("image_c", "slice_c", "row_c", "column_c"), (self.image_c, *self.strides_c), strict=True)),
            feature_c=self.feature_c,
            feature_b=self.feature_b,
            slices_a=self.sources[0],
            rows_a=self.sources[1],
            step_slices=slices.step,
            step_rows=rows.step,
            window_slices=len(slices.starts),
            slice_starts=np.array(slices.starts, np.int64),
            first_row=min(rows.starts),
            reach_rows=rows.reach,
            begin=begin * self.strides_a[2],
            before=before,
            inside=inside,
            plane=plane,
            slice_bytes=window // len(slices.starts),
            column_offsets=np.arange(LANES, dtype=np.int64) * self.strides_a[2],
            block_rows=self.unit_rows,
            **self._runs(plane, window // len(slices.starts)),
            sums=layout.after_words(VECTOR * most_sums(self.features) * self.features),
        )
        return Encoded.of(few_features(self.run), block(parameters), layout.space())

    def _runs(self, plane: int, slice_bytes: int) -> dict[str, Any]:
        """The fields of `Few` for the runs, with columns innermost: they read the same cache lines."""
        slices, rows, columns = self.reads
        order = sorted(range(len(rows.starts)), key=lambda tap: rows.starts[tap])
        firsts = [order[at] for at in range(0, len(order), self.run.rows)]
        second = order[1] if self.run.rows > 1 else order[0]
        offsets_a, offsets_b = [], []
        for number, feature, row, column in product(
            range(len(slices.starts)), range(self.inputs), firsts, range(len(columns.starts))
        ):
            at = ((rows.starts[row] - min(rows.starts)) * self.inputs + feature) * plane
            offsets_a.append(number * slice_bytes + at + 4 * (columns.starts[column] - min(columns.starts)))
            taps = slices.taps[number], rows.taps[row], columns.taps[column]
            offsets_b.append(sum(t * s for t, s in zip(taps, self.strides_b, strict=True)) + feature * self.input_b)
        return {
            "runs": len(offsets_a),
            "tap_b": (rows.taps[second] - rows.taps[order[0]]) * self.strides_b[1],
            "offset_a": np.array(offsets_a, np.int64),
            "offset_b": np.array(offsets_b, np.int64),
        }


def plane_bytes(columns: int, reach: int, filled: int = 0) -> int:
    """Bytes of a row of one feature, rounded up to whole vectors."""
    return 4 * whole_vectors(max(whole_vectors(columns) + reach - 1, filled))


def window_bytes(row: int, slices: int, rows: Reads, unit_rows: int) -> int:
    """Bytes of a unit's window, whose rows have `row` bytes each."""
    return slices * ((unit_rows - 1) * rows.step + rows.reach) * row


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
