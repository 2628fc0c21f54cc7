"""Depthwise and grouped convolutions, and gradients, that copy windows of an image to scratch with zeros around it.

Their inputs need no padded copies in memory, and a window is read from the nearest cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from engine.codelets.convolutions.window_filling import DEPTHWISE, LANES, RUNS, STEPS, VECTOR, ColumnRun, FeatureGroup
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchLayout
from engine.frozen import frozen
from engine.host.convolutions.direct import ConvolutionArrays
from engine.host.convolutions.grouped import has_windows
from engine.host.convolutions.images import Images
from engine.host.convolutions.part import ConvolutionPart, Pair, part_of
from engine.program.buffer import Address
from engine.program.builder import ProgramBuilder
from engine.program.contraction import emit_contraction
from engine.program.convolution_size import Phase
from engine.program.program import ComputeSet, Partition, Span
from engine.program.work.base import Footprint, Work
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import Offsets

Taps = tuple[tuple[int, int], ...]
WINDOW_BYTES = 24 << 10
"""Most bytes of a window in scratch: it stays in the first-level cache."""
GROUPED_BYTES = 192 << 10
"""Most bytes of a window with several planes, whose multiply-adds leave time to read it from the second-level cache."""


@frozen
class DepthwiseWork(HostWork):
    """Output o of each image C reads inputs o * step + tap - low of A along rows and columns.

    `taps` are rows and columns of the window, from 0 on, in the order of the sums; the window has one row for each row
    of an image and each input of a group.
    """

    writes_c: ClassVar[bool]

    images: int
    a: Images
    c: Images
    step: Pair
    taps: Taps
    offsets_b: Offsets
    group: FeatureGroup

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of the images."""
        yield from (self.a.footprint(self.images, False), self.c.footprint(self.images, self.writes_c))


@frozen
class DepthwiseWindows(DepthwiseWork):
    """The outputs C of images A by the kernel B. A unit has `unit_rows` rows of all images."""

    writes_c: ClassVar[bool] = True

    b: Address
    unit_rows: int

    @property
    def unit_count(self) -> int:
        return -(-self.images * self.c.size[0] // self.unit_rows)

    def encode(self) -> Encoded:
        """The words of `Forward`; scratch has a window."""
        from engine.codelets.convolutions.depthwise_windows import Forward, depthwise_forward

        run = _run(self.taps, self.step[1])
        fields, scratch = _fields(self, _first_taps(self.taps, run))
        parameters = Forward(**fields, b=self.b, offset_b=self.offsets_b.table, unit_rows=self.unit_rows)
        return Encoded.of(depthwise_forward(run, self.group), block(parameters), scratch)


@frozen
class DepthwiseGradient(DepthwiseWork):
    """The gradient of a depthwise or grouped convolution by its kernel; C has the gradients of its outputs.

    The rows of all outputs are divided into parts. The sums of part p begin p * `part_bytes` further on, the sums of
    each tap at an offset of `offsets_b`. A unit has `unit_channels` channels of a part.
    """

    writes_c: ClassVar[bool] = False

    sums: Address
    parts: int
    part_bytes: int
    unit_channels: int

    @property
    def unit_count(self) -> int:
        return self.parts * -(-self.c.features // self.unit_channels)

    def encode(self) -> Encoded:
        """The words of `Backward`; scratch has a window."""
        from engine.codelets.convolutions.depthwise_windows import Backward, depthwise_gradient

        planes = self.group.inputs
        order = sorted(range(len(self.taps)), key=lambda tap: (self.taps[tap][0] % planes, self.taps[tap]))
        taps = tuple(self.taps[tap] for tap in order)
        run = _run(taps, self.step[1])
        fields, window = _fields(self, _first_taps(taps, run))
        layout = ScratchLayout()
        layout.area(window)
        parameters = Backward(
            **fields,
            sums=self.sums,
            row_sums=self.offsets_b.table[order],
            parts=self.parts,
            part_bytes=self.part_bytes,
            unit_channels=self.unit_channels,
            copied=layout.area(VECTOR * fields["block_rows"] * self.c.size[1]),
        )
        return Encoded.of(depthwise_gradient(run, self.group), block(parameters), layout.space())


def _run(taps: Taps, step: int) -> ColumnRun:
    """The longest runs of neighbouring columns that have a kernel and into which all taps divide."""
    for columns in RUNS:
        for sign in (1, -1):
            if (
                all(
                    tap == (taps[first][0], taps[first][1] + sign * number)
                    for first in range(0, len(taps), columns)
                    for number, tap in enumerate(taps[first : first + columns])
                )
                and len(taps) % columns == 0
            ):
                return ColumnRun(step, columns, sign < 0)
    return ColumnRun(step, 1)


def _first_taps(taps: Taps, run: ColumnRun) -> list[tuple[int, int]]:
    """The tap of the first column of each run."""
    return [min(taps[at : at + run.columns]) for at in range(0, len(taps), run.columns)]


def _fields(work: DepthwiseWork, runs: list[tuple[int, int]]) -> tuple[dict[str, Any], int]:
    """The fields of `Windows`, and the bytes of a window in scratch."""
    planes, inputs, outputs = work.group.inputs, work.a, work.c
    reach = 1 + max(row for row, _ in work.taps) // planes
    width = (outputs.size[1] - 1) * work.step[1] + 1 + max(column for _, column in work.taps)
    plane = VECTOR * width
    row = plane * planes
    most = WINDOW_BYTES if planes == 1 else GROUPED_BYTES
    rows = max(1, min(outputs.size[0], (most // row - reach) // work.step[0] + 1))
    rows -= rows % 2 if 1 < planes and 1 < rows < outputs.size[0] else 0  # kernels take pairs of rows
    fields = {
        "a": inputs.address,
        "c": outputs.address,
        "channels": outputs.features,
        "images": work.images,
        **dict(zip(("rows", "columns"), outputs.size, strict=True)),
        **dict(zip(("image_a", "row_a", "column_a"), inputs.strides, strict=True)),
        **dict(zip(("image_c", "row_c", "column_c"), outputs.strides, strict=True)),
        **dict(zip(("rows_a", "columns_a"), inputs.size, strict=True)),
        "first_row": -inputs.low[0],
        "first_column": -inputs.low[1],
        "step_rows": work.step[0],
        "reach_rows": reach,
        "width": width,
        "row_bytes": row,
        "block_rows": rows,
        "runs": len(runs),
        "offset_a": np.array([y * plane + VECTOR * x for y, x in runs], np.int64),
    }
    return fields, ((rows - 1) * work.step[0] + reach) * row


UNITS = 16
"""Most units of a convolution: neighbouring units both copy rows of the image that both read."""
GRADIENT_UNITS = 8
"""Units of channels of a gradient without partial sums."""
Windowed = DepthwiseWindows | DepthwiseGradient


def windowed(arrays: ConvolutionArrays, name: str, phases: tuple[Phase, ...]) -> list[ComputeSet] | None:
    """The compute sets of a part of a depthwise or grouped convolution of float32 images; None for other parts.

    They are those of the contraction, whose division into partial sums and units they have, with other work.
    """
    draft = arrays.draft
    if draft.shape.element_type != "f32" or len(phases) != 2:
        return None
    beside = ProgramBuilder(rows=arrays.builder.rows)
    direct = ConvolutionArrays(beside, draft)
    direct.kernel, direct.target = arrays.kernel, arrays.target
    contraction = direct.contraction(phases)
    before = len(beside.compute_sets)
    emit_contraction(beside, replace(contraction, name=name, windowed=has_windows(draft)))
    part = part_of(draft, name, phases, (draft.left, arrays.kernel, arrays.target), [0, 0])
    found = beside.compute_sets[before:]
    made = _work(part, found[0].work) if found else None
    if made is None:
        return None
    multiplied, *added = found
    reads = [Span(part.a.buffer), Span(part.b.buffer)]
    writes = [replace(multiplied.writes[0], partition=_partition(made))]
    return [replace(multiplied, work=made, units=made.unit_count, reads=reads, writes=writes), *added]


def _work(part: ConvolutionPart, work: Work) -> Windowed | None:
    """The work in place of a contraction, if images are evenly spaced and whole groups fill the lanes; else None."""
    size = part.size
    if not isinstance(work, Contraction) or (work.operand_type, work.result_type) != ("f32", "f32"):
        return None
    group = _group(work)
    if group is None or not (work.depthwise or group.fills_few_lanes):
        return None
    if size.batch == group.inputs and (size.inputs != group.inputs or prod(size.taps) > prod(size.field)):
        return _gradient(part, work, group)
    return _forward(part, work, group) if size.inputs == group.inputs and work.splits == 1 else None


def _group(work: Contraction) -> FeatureGroup | None:
    """The features of a group, if groups are neighbours in all three arrays and whole ones fill the lanes."""
    steps = [set(np.diff(each.table).tolist()) for each in (work.batch_a, work.batch_b, work.batch_c)]
    if any(len(each) != 1 or min(each) % 4 for each in steps):
        return None
    (inputs,), *others = steps
    dense = others == [{4 * work.columns}] * 2 and (work.columns == 1 or work.stride_b == 4)
    return FeatureGroup(inputs // 4, work.columns) if inputs > 0 and dense and LANES % work.columns == 0 else None


def _forward(part: ConvolutionPart, work: Contraction, group: FeatureGroup) -> DepthwiseWindows | None:
    """Makes the work of a convolution: its positions are those of the outputs, sums are over taps and inputs."""
    (rows, columns), batch = part.axes, part.batch
    field, taps = (rows.count, columns.count), (rows.taps, columns.taps)
    window = _window(part, field, taps, (rows.step, columns.step), (rows.apart, columns.apart), group)
    if window is None or (part.inputs.count > 1 and part.inputs.one != 4):
        return None
    of_taps = (rows.stride_b, columns.stride_b, part.inputs.other)
    offsets = np.array([int(np.dot(each, of_taps)) for each in np.ndindex(*taps, group.inputs)])
    # Sums in the order of the kernel in memory, or else neighbouring columns of a plane one after the other.
    order = (
        np.argsort(offsets, kind="stable") if group == DEPTHWISE else sorted(range(len(window)), key=window.__getitem__)
    )
    channels = len(work.batch_a) * group.outputs
    return DepthwiseWindows(
        batch.count,
        _inputs(part, group.before(channels), batch.one),
        Images(part.c, channels, (batch.other, rows.stride_c, columns.stride_c), field),
        step=(rows.step, columns.step),
        taps=tuple(window[tap] for tap in order),
        offsets_b=Offsets(offsets[order]),
        group=group,
        b=part.b,
        unit_rows=-(-batch.count * field[0] // (UNITS if work.unit_count > 1 else 1)),
    )


def _gradient(part: ConvolutionPart, work: Contraction, group: FeatureGroup) -> DepthwiseGradient | None:
    """Makes the work of a gradient: its positions are those of the taps, sums are over positions and images."""
    (rows, columns), images = part.axes, part.inputs
    field, taps = (rows.taps, columns.taps), (rows.count, columns.count)
    window = _window(part, field, taps, (rows.apart, columns.apart), (rows.step, columns.step), group)
    if window is None or work.splits > images.count * field[0] or (part.batch.count > 1 and part.batch.one != 4):
        return None
    if min(rows.stride_b, columns.stride_b) < 0:  # a reversed kernel, not gradients of outputs
        return None
    of_taps = (rows.stride_c, columns.stride_c, part.batch.other)
    offsets = np.array([int(np.dot(each, of_taps)) for each in np.ndindex(*taps, group.inputs)])
    channels = len(work.batch_a) * group.outputs
    blocks = GRADIENT_UNITS if work.splits == 1 and work.unit_count > 1 else 1
    return DepthwiseGradient(
        images.count,
        _inputs(part, group.before(channels), images.one),
        Images(part.b, channels, (images.other, rows.stride_b, columns.stride_b), field),
        step=(rows.apart, columns.apart),
        taps=window,
        offsets_b=Offsets(offsets),
        group=group,
        sums=replace(work.c, offset=part.c.offset),
        parts=work.splits,
        part_bytes=work.partial_pitch,
        unit_channels=-(-channels // (blocks * LANES)) * LANES,
    )


def _inputs(part: ConvolutionPart, features: int, image: int) -> Images:
    """The images of A, `image` bytes apart."""
    rows, columns = part.axes
    strides = image, rows.stride_a, columns.stride_a
    return Images(part.begin, features, strides, (rows.size, columns.size), (rows.low, columns.low))


def _window(
    part: ConvolutionPart, field: Pair, taps: Pair, step: Pair, apart: Pair, group: FeatureGroup
) -> Taps | None:
    """Rows and columns of taps in a window, each with all planes; None for images or taps without a kernel."""
    rows, columns = part.axes
    if step[1] not in STEPS or min(field) < 2 or min(rows.size, columns.size) < 1:
        return None
    if rows.stride_a <= columns.stride_a or columns.stride_a < 4 * group.inputs:
        return None
    if group != DEPTHWISE and prod(taps) == 1:  # a copy of one tap is worth nothing
        return None
    return tuple(
        (row * apart[0] * group.inputs + plane, column * apart[1])
        for row, column, plane in np.ndindex(*taps, group.inputs)
    )


def _partition(work: Windowed) -> Partition | None:
    """The elements that each unit writes, where these are contiguous."""
    if isinstance(work, DepthwiseGradient):
        elements = work.sums.buffer.shape.elements // work.parts
        whole = work.unit_channels >= work.c.features and work.part_bytes == 4 * elements
        return Partition(elements, work.parts, 1) if whole and work.parts > 1 else None
    return work.c.partition(work.images, work.unit_rows)
