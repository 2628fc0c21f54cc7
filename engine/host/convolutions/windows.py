"""Depthwise and grouped convolutions, and gradients, that copy windows of an image to scratch with zeros around it.

Their inputs need no padded copies in memory, and a window is read from the nearest cache.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from engine.codelets.convolutions.window_filling import DEPTHWISE, LANES, STEPS, FeatureGroup
from engine.host.convolutions.direct import ConvolutionArrays
from engine.host.convolutions.merged_groups import has_windows
from engine.host.convolutions.part import ConvolutionPart, Pair, part_of
from engine.host.work.depthwise_windows import DepthwiseGradient, DepthwiseWindows, Taps
from engine.program.building.builder import ProgramBuilder
from engine.program.building.contraction import emit_contraction
from engine.program.convolution_size import Phase
from engine.program.program import ComputeSet, Partition, Span
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import Offsets

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
    return DepthwiseWindows(
        a=part.begin,
        b=part.b,
        c=part.c,
        images=batch.count,
        channels=len(work.batch_a) * group.outputs,
        size=(rows.size, columns.size),
        low=(rows.low, columns.low),
        field=field,
        step=(rows.step, columns.step),
        taps=tuple(window[tap] for tap in order),
        strides_a=(batch.one, rows.stride_a, columns.stride_a),
        strides_c=(batch.other, rows.stride_c, columns.stride_c),
        offsets_b=Offsets(offsets[order]),
        unit_rows=-(-batch.count * field[0] // (UNITS if work.unit_count > 1 else 1)),
        group=group,
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
        a=part.begin,
        c=part.b,
        sums=replace(work.c, offset=part.c.offset),
        images=images.count,
        channels=channels,
        size=(rows.size, columns.size),
        low=(rows.low, columns.low),
        field=field,
        step=(rows.apart, columns.apart),
        taps=window,
        strides_a=(images.one, rows.stride_a, columns.stride_a),
        strides_c=(images.other, rows.stride_b, columns.stride_b),
        offsets_b=Offsets(offsets),
        parts=work.splits,
        part_bytes=work.partial_pitch,
        unit_channels=-(-channels // (blocks * LANES)) * LANES,
        group=group,
    )


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
        whole = work.unit_channels >= work.channels and work.part_bytes == 4 * elements
        return Partition(elements, work.parts, 1) if whole and work.parts > 1 else None
    rows, columns = work.field
    column = 4 * work.channels
    dense = work.strides_c == (column * rows * columns, column * columns, column)
    if not dense or work.c.buffer.shape.elements != work.images * rows * columns * work.channels:
        return None
    return Partition(work.channels * columns, work.images * rows, work.unit_rows)
