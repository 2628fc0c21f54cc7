"""Depthwise and grouped convolutions, and gradients, that copy windows of an image to scratch with zeros around it.

Their inputs need no padded copies in memory, and a window is read from the nearest cache. For the host only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.codelets.convolutions.window_sizes import DEPTHWISE, LANES, STEPS, FeatureGroup
from engine.host.passes.unpadded import original, reading
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import Address, ComputeSet, Partition, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.depthwise_windows import DepthwiseGradient, DepthwiseWindows, Taps
from engine.program.work.offsets import Offsets
from engine.program.work.winograd_tiles import Strides

UNITS = 16
"""Most units of a convolution: neighbouring units both copy rows of the image that both read."""
GRADIENT_UNITS = 8
"""Units of channels of a gradient without partial sums."""

Windowed = DepthwiseWindows | DepthwiseGradient


def window_depthwise(program: Program) -> Program:
    """Replaces depthwise contractions of float32 images, and drops the padded copies that nothing reads any more."""
    if program.exceptions is not None:
        return program
    rewriter = ProgramRewriter(program)
    changed, copies = False, set[int]()
    for at, each in enumerate(program.compute_sets):
        made = _windowed(each)
        if made is not None:
            changed = True
            copies |= _replaced(rewriter, at, made)
    rewriter.remove(at for at in copies if not rewriter.uses.readers(program.compute_sets[at].writes[0].buffer))
    return rewriter.result() if changed else program


def _replaced(rewriter: ProgramRewriter, at: int, work: Windowed) -> set[int]:
    """Lets compute set `at` read the array before it was padded; returns the number of the padded copy, if any."""
    inputs = work.group.before(work.channels)
    each, found = rewriter.sets[at], original(rewriter, at, work.a, (work.images, inputs), work.strides_a)
    if found is not None:
        each = reading(each, work.a, found.span)
        work = replace(work, a=found.address, strides_a=found.strides, size=found.size, low=found.low)
    reads = [replace(span, partition=None) for span in each.reads]
    writes = [replace(each.writes[0], partition=_partition(work))]
    rewriter.replace(at, replace(each, work=work, units=work.unit_count, reads=reads, writes=writes))
    return set() if found is None else {found.copy}


def _windowed(product: ComputeSet) -> Windowed | None:
    """Makes work for a compute set that is a depthwise or grouped convolution of evenly spaced images; else None."""
    work, size = product.work, product.work_estimate.convolution
    if not isinstance(work, Contraction) or size is None or len(size.field) != 2:
        return None
    if (work.operand_type, work.result_type) != ("f32", "f32") or size.groups != len(work.batch_a):
        return None
    group = _group(work)
    if group is None or not (work.depthwise or group.fills_few_lanes):
        return None
    if size.batch == group.inputs and (size.inputs != group.inputs or np.prod(size.taps) > np.prod(size.field)):
        return _gradient(work, size, group)
    return _forward(work, size, group) if size.inputs == group.inputs and work.splits == 1 else None


def _group(work: Contraction) -> FeatureGroup | None:
    """The features of a group, if groups are neighbours in all three arrays and whole ones fill the lanes."""
    steps = [set(np.diff(each.table).tolist()) for each in (work.batch_a, work.batch_b, work.batch_c)]
    if any(len(each) != 1 or min(each) % 4 for each in steps):
        return None
    (inputs,), *others = steps
    dense = others == [{4 * work.columns}] * 2 and (work.columns == 1 or work.stride_b == 4)
    return FeatureGroup(inputs // 4, work.columns) if inputs > 0 and dense and LANES % work.columns == 0 else None


def _forward(work: Contraction, size: ConvolutionSize, group: FeatureGroup) -> DepthwiseWindows | None:
    """Makes the work of a convolution: contraction rows are output positions, k are taps and a group's inputs."""
    field, step = (size.field[0], size.field[1]), _whole(size.steps)
    images = size.batch, *field
    if step is None or step[1] not in STEPS or len(work.row_a) != np.prod(images):
        return None
    found = _windows(images, step, work.row_a.table, work.row_c.table, work.k_a.table, group)
    if found is None:
        return None
    order = _order(found["taps"], group)
    return DepthwiseWindows(
        **{**found, "taps": tuple(found["taps"][tap] for tap in order)},
        a=_moved(work.a, work.row_a.table[0] + work.k_a.table.min()),
        b=work.b,
        c=_moved(work.c, work.row_c.table[0]),
        channels=len(work.batch_a) * group.outputs,
        offsets_b=Offsets(work.k_b.table[order]),
        unit_rows=-(-size.batch * field[0] // (UNITS if work.unit_count > 1 else 1)),
        group=group,
    )


def _order(taps: Taps, group: FeatureGroup) -> list[int]:
    """Orders taps: as they are for depthwise convolutions, else neighbouring columns of a plane one after the other."""
    return sorted(range(len(taps)), key=lambda tap: taps[tap]) if group != DEPTHWISE else list(range(len(taps)))


def _gradient(work: Contraction, size: ConvolutionSize, group: FeatureGroup) -> DepthwiseGradient | None:
    """Makes the work of a gradient: contraction rows are taps and a group's inputs, k are output positions."""
    field, step = (size.taps[0], size.taps[1]), _whole(size.dilations)
    images = size.inputs, *field
    if step is None or step[1] not in STEPS or len(work.k_a) != np.prod(images):
        return None
    found = _windows(images, step, work.k_a.table, work.k_b.table, work.row_a.table, group)
    if found is None or work.splits > size.inputs * field[0]:
        return None
    channels = len(work.batch_a) * group.outputs
    blocks = GRADIENT_UNITS if work.splits == 1 and work.unit_count > 1 else 1
    return DepthwiseGradient(
        **found,
        a=_moved(work.a, work.row_a.table.min() + work.k_a.table[0]),
        c=_moved(work.b, work.k_b.table[0]),
        sums=work.c,
        channels=channels,
        offsets_b=work.row_c,
        parts=work.splits,
        part_bytes=work.partial_pitch,
        unit_channels=-(-channels // (blocks * LANES)) * LANES,
        group=group,
    )


def _windows(
    images: tuple[int, int, int],
    step: tuple[int, int],
    inputs: np.ndarray,
    outputs: np.ndarray,
    offsets: np.ndarray,
    group: FeatureGroup,
) -> dict[str, Any] | None:
    """Finds fields of both kinds of work from byte offsets of the images' positions in both arrays, and of the taps."""
    moved, strides_c = evenly(inputs, images), evenly(outputs, images)
    if moved is None or strides_c is None:
        return None
    strides = moved[0], moved[1] // step[0], moved[2] // step[1]
    taps = _taps(offsets, strides, group)
    if taps is None or (group != DEPTHWISE and len(taps) == group.inputs):  # a copy of one tap is worth nothing
        return None
    field = images[1], images[2]
    return {
        "images": images[0],
        "size": _reach(field, step, taps, group),
        "low": (0, 0),
        "field": field,
        "step": step,
        "taps": taps,
        "strides_a": strides,
        "strides_c": strides_c,
    }


def _whole(steps: tuple[float, ...]) -> tuple[int, int] | None:
    """Steps along rows and columns, if they are whole numbers."""
    rows, columns = steps
    return (int(rows), int(columns)) if rows == int(rows) and columns == int(columns) else None


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


def _reach(field: tuple[int, int], step: tuple[int, int], taps: Taps, group: FeatureGroup) -> tuple[int, int]:
    """Rows and columns of an image that all outputs read."""
    last = max(row for row, _ in taps) // group.inputs, max(column for _, column in taps)
    rows, columns = (last[d] + (field[d] - 1) * step[d] + 1 for d in (0, 1))
    return rows, columns


def _moved(address: Address, offset: int) -> Address:
    return replace(address, offset=address.offset + int(offset))


def _taps(offsets: np.ndarray, strides: Strides, group: FeatureGroup) -> Taps | None:
    """Rows and columns of taps in a window from their offsets, if those are multiples of the strides."""
    if strides[1] <= strides[2] or strides[2] < 4 * group.inputs:
        return None
    rows, rest = np.divmod(offsets - offsets.min(), strides[1])
    columns, rest = np.divmod(rest, strides[2])
    planes, rest = np.divmod(rest, 4)
    if rest.any() or planes.max() >= group.inputs:
        return None
    return tuple(zip((rows * group.inputs + planes).tolist(), columns.tolist(), strict=True))


def evenly(offsets: np.ndarray, extents: Sequence[int]) -> Strides | None:
    """The strides along three dimensions, if they give the offsets of all positions in order.

    A single image has stride 0. Returns None for a single row or column.
    """
    grid = offsets.reshape(extents) - offsets.reshape(-1)[0]
    if min(extents[1:]) < 2:
        return None
    first = int(grid[1, 0, 0]) if extents[0] > 1 else 0
    strides = first, int(grid[0, 1, 0]), int(grid[0, 0, 1])
    one, two, three = (np.arange(extent) * stride for extent, stride in zip(extents, strides, strict=True))
    return strides if np.array_equal(grid, np.add.outer(np.add.outer(one, two), three)) else None
