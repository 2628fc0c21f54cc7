"""Convolutions with few output features, such as a decoder's last layer, with columns of outputs in the lanes."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

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
from engine.frozen import frozen
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.images import Images
from engine.host.convolutions.part import Axis, ConvolutionPart, Features, estimate_of, part_of
from engine.host.convolutions.pixel_groups import LEAST_MULTIPLY_ADDS
from engine.program.buffer import Address
from engine.program.builder import ProgramBuilder
from engine.program.convolution_size import has_sums
from engine.program.copies import fill
from engine.program.nest import Constant
from engine.program.program import ComputeSet, Partition, Span
from engine.program.work.offsets import table


@frozen
class FewFeatures(HostWork):
    """Outputs of a batch with few features each, from images of contiguous features.

    The `axes` are slices, rows and columns; the step along columns is 1. A unit has `unit_rows` rows of one slice.
    """

    a: Address
    b: Address
    c: Address
    batch: Features
    inputs: Features
    outputs: Features
    axes: tuple[Axis, Axis, Axis]
    unit_rows: int

    @property
    def unit_count(self) -> int:
        slices, rows, _ = self.axes
        return self.batch.count * slices.count * -(-rows.count // self.unit_rows)

    @property
    def run(self) -> RowRun:
        """The longest runs of neighbouring rows that have a kernel and into which the taps of a column divide."""
        (_, axis, _), features = self.axes, self.outputs.count
        longest = [n for n in RUNS if axis.taps % n == 0 and n * features <= MOST_FACTORS]
        return RowRun(longest[0] if longest and axis.step == axis.apart == 1 else 1, features)

    def encode(self) -> Encoded:
        """The words of `Few`; scratch has the planes of the rows that a unit reads, and sums."""
        from engine.codelets.convolutions.few_features import Few, few_features

        slices, rows, columns = self.axes
        plane = plane_bytes(columns, columns.low + whole_vectors(columns.size))
        of_slice = slice_bytes(self.inputs.count * plane, rows, self.unit_rows)
        layout = ScratchLayout()
        layout.area(slices.taps * of_slice)
        parameters = Few(
            a=self.a,
            b=self.b,
            c=self.c,
            inputs=self.inputs.count,
            slices=slices.count,
            rows=rows.count,
            columns=columns.count,
            image_a=self.batch.one,
            slice_a=slices.stride_a,
            row_a=rows.stride_a,
            image_c=self.batch.other,
            slice_c=slices.stride_c,
            row_c=rows.stride_c,
            column_c=columns.stride_c,
            feature_c=self.outputs.other,
            tap_b=rows.stride_b,
            feature_b=self.outputs.one,
            slices_a=slices.source,
            rows_a=rows.source,
            step_slices=slices.step,
            step_rows=rows.step,
            window_slices=slices.taps,
            slice_starts=slices.start + slices.apart * np.arange(slices.taps),
            first_row=rows.start,
            reach_rows=rows.reach,
            begin=columns.first * columns.stride_a,
            before=columns.low,
            inside=columns.size,
            plane=plane,
            slice_bytes=of_slice,
            column_offsets=np.arange(LANES) * columns.stride_a,
            block_rows=self.unit_rows,
            **self._runs(plane, of_slice),
            sums=layout.after_words(VECTOR * most_sums(self.outputs.count) * self.outputs.count),
        )
        return Encoded.of(few_features(self.run), block(parameters), layout.space())

    def _runs(self, plane: int, of_slice: int) -> dict[str, Any]:
        """The fields of `Few` for the runs, with columns innermost: they read the same cache lines."""
        slices, rows, columns = self.axes
        inputs, firsts = self.inputs, np.arange(0, rows.taps, self.run.rows)
        row_a = rows.apart * inputs.count * plane
        of_a = (slices.taps, of_slice), (inputs.count, plane), (len(firsts), self.run.rows * row_a)
        of_b = (
            (slices.taps, slices.stride_b),
            (inputs.count, inputs.other),
            (len(firsts), self.run.rows * rows.stride_b),
        )
        offset_a = table(*of_a, (columns.taps, 4 * columns.apart))
        return {
            "runs": len(offset_a),
            "offset_a": offset_a,
            "offset_b": table(*of_b, (columns.taps, columns.stride_b)),
        }


def plane_bytes(columns: Axis, filled: int = 0) -> int:
    """Bytes of a row of one feature, rounded up to whole vectors."""
    return 4 * whole_vectors(max(whole_vectors(columns.count) + columns.reach - 1, filled))


def slice_bytes(row: int, rows: Axis, unit_rows: int) -> int:
    """Bytes of a slice of a unit's window, whose rows have `row` bytes each."""
    return ((unit_rows - 1) * rows.step + rows.reach) * row


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
    found = [_cycles(each) for each in _parts(draft)]
    cycles = [each for each in found if each is not None]
    return sum(cycles) if len(cycles) == len(found) > 0 else None


def emit_few_features(builder: ProgramBuilder, draft: ConvolutionDraft) -> None:
    """Emits the compute sets of lanes over columns of outputs; positions that no tap reaches become zero."""
    if any(not phase.taps for phases in draft.phases for phase in phases):
        fill(builder, f"{draft.name}.zero", draft.result, Constant("f32", "0.0"), draft.op_name)
    for part in _parts(draft):
        rows = _unit_rows(part)
        assert rows is not None
        work = FewFeatures(part.a, part.b, part.c, part.batch, part.inputs, part.outputs, _axes(part), rows)
        reads, writes = [Span(part.a.buffer), Span(part.b.buffer)], [Span(part.c.buffer, _partition(work))]
        builder.emit(ComputeSet(part.name, work, work.unit_count, reads, writes, estimate_of(part), part.op_name))


def _is_possible(draft: ConvolutionDraft) -> bool:
    """Whether a float32 convolution has few output features, contiguous input features, and columns read one by one."""
    numbers, left = draft.numbers, draft.left
    if draft.shape.element_type != "f32" or draft.groups != 1 or not 1 <= len(draft.window) <= 3:
        return False
    features = draft.shape.dimensions[numbers.output_feature_dimension]
    if not 1 <= features <= MOST_FEATURES or left.strides[numbers.input_feature_dimension] != 4:
        return False
    return all(phase.step == 1 for phase in draft.phases[-1]) and bool(left.shape.elements)


def _parts(draft: ConvolutionDraft) -> list[ConvolutionPart]:
    """The parts of all combinations of phases."""
    arrays, lows = (draft.left, draft.right, draft.result), [0] * len(draft.window)
    combinations = list(product(*draft.phases))
    names = [f"{draft.name}.{number}" if len(combinations) > 1 else draft.name for number in range(len(combinations))]
    pairs = zip(names, combinations, strict=True)
    return [part_of(draft, name, phases, arrays, lows) for name, phases in pairs if has_sums(phases)]


def _axes(part: ConvolutionPart) -> tuple[Axis, Axis, Axis]:
    """The axes of slices, rows and columns, of which an image may not have the first ones."""
    slices, rows, columns = (*[Axis()] * (3 - len(part.axes)), *part.axes)
    return slices, rows, columns


def _cycles(part: ConvolutionPart) -> float | None:
    """Estimated cycles of a part; None where units are too few, or a unit's rows exceed the cache."""
    slices, rows, columns = _axes(part)
    images, inputs, features, unit_rows = part.batch.count, part.inputs.count, part.outputs.count, _unit_rows(part)
    if unit_rows is None:
        return None
    units = images * slices.count * -(-rows.count // unit_rows)
    if units < LEAST_UNITS:
        return None
    window = slices.taps * slice_bytes(inputs * plane_bytes(columns), rows, unit_rows)
    outputs = images * slices.count * rows.count
    products = outputs * -(-columns.count // LANES) * prod(part.size.taps) * inputs * features
    filled, stored = window / (4 * LANES) * units, outputs * columns.count * features
    return FILL_CYCLES * filled + PRODUCT_CYCLES * products + STORE_CYCLES * stored


def _partition(work: FewFeatures) -> Partition | None:
    """The elements that each unit writes, where these are contiguous and units have equally many rows."""
    (slices, rows, columns), images, outputs = work.axes, work.batch, work.outputs
    if slices.count > 1 or rows.count % work.unit_rows or outputs.other != 4:
        return None
    strides = images.other, rows.stride_c, columns.stride_c
    return Images(work.c, outputs.count, strides, (rows.count, columns.count)).partition(images.count, work.unit_rows)


def _unit_rows(part: ConvolutionPart) -> int | None:
    """Chooses a unit's rows for enough units, whole kernels and a window that fits; None if one row's does not fit."""
    (slices, rows, columns), features = _axes(part), part.outputs.count
    row = part.inputs.count * plane_bytes(columns)
    windows = [slices.taps * slice_bytes(row, rows, count) for count in range(1, rows.count + 1)]
    if windows[0] > MOST_WINDOW_BYTES:
        return None
    most = max(1, sum(window <= WINDOW_BYTES for window in windows))
    together = most_rows(features, min(most_vectors(features), -(-columns.count // LANES)))
    wanted = max(together, -(-part.batch.count * slices.count * rows.count // UNITS))
    chosen = min(most, wanted, rows.count)
    return max(1, chosen // together * together) if chosen >= together else chosen
