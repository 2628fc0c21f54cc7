"""HLO scatter: the operand's copy, with updates combined into it in the order of their indices.

Units partition one dimension of the operand, so that each element belongs to one unit and takes its updates in
index order: the bits do not depend on the number of workers. Bodies are generated codelets, called by address as
`combine(target, source, count, others)`. An update whose window is not inside the operand is skipped whole. `scatter`
itself knows only the first of several operands; `others` gives the body the addresses of all.

Parameters (int64 words): the header `Scatter`, then the Dimensions of positions, the IndexComponents, and the
Dimensions that count the contiguous runs of an update window, without the cut one. Last, for several operands, two
words for each: the addresses of its target and updates.
"""

from __future__ import annotations

from math import prod

from engine.codelets.host.rows import copy_bytes
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.memory import call_code
from engine.codelets.language.record import Address, Record
from engine.codelets.rows.index_walk import (
    Dimension,
    IndexComponent,
    load_index,
    offsets_at,
    position_dimensions,
    run_dimensions,
)
from engine.ir.strides import index_signed
from engine.program.work.indexing import ScatterWork


class Scatter(Record):
    """The header of the parameters."""

    operand: Address = 0  # equal to TARGET if the copy is there already
    indices: Address = 0
    updates: Address = 0
    target: Address = 0
    combiner: Address = 0  # the codelet; 0 if updates replace elements
    index_bytes: int
    index_signed: int
    element_bytes: int
    positions: int  # number of index vectors
    position_rank: int
    index_components: int
    window_rank: int
    window_runs: int  # product of the window dimensions' sizes
    cut_size: int  # size of the cut dimension of the operand
    cut_stride: int  # its byte stride in the operand
    cut_window: int  # its size in the update window
    cut_update_stride: int
    cut_chunk: int  # coordinates in one unit
    cut_outer: int  # elements of the operand: product of the sizes before the cut
    run_length: int  # elements of a run that is contiguous in operand and updates, below the cut
    cut_in_run: int  # whether coordinates along the cut continue the run


ScatterParts = tuple[Scatter, list[Dimension], list[IndexComponent], list[Dimension], tuple[Address, ...]]


@inner
def copied_range(given: Scatter, lo: int, hi: int) -> tuple[int, int]:
    """Copies the units' part of the operand; returns where along the cut it begins and ends."""
    first, last = lo * given.cut_chunk, min(hi * given.cut_chunk, given.cut_size)
    begin, pitch = first * given.cut_stride, given.cut_size * given.cut_stride
    if given.operand != given.target:
        for outer in range(given.cut_outer):
            offset = begin + outer * pitch
            copy_bytes(given.target + offset, given.operand + offset, (last - first) * given.cut_stride)
    return first, last


@inner
def _combine_window(given: Scatter, windows: int, target: int, update: int, extent: int) -> None:
    """Combines `extent` coordinates along the cut of one update window."""
    runs, size = extent, given.run_length
    if given.cut_in_run:
        runs, size = 1, size * extent
    others = windows + 8 * Dimension.WORDS * given.window_rank
    for number in range(given.window_runs):
        here, there, _, _ = offsets_at(windows, given.window_rank, number)
        for run in range(runs):
            old, new = target + here + run * given.cut_stride, update + there + run * given.cut_update_stride
            if given.combiner == 0:
                copy_bytes(old, new, size * given.element_bytes)
            else:
                call_code(given.combiner, old, new, size, others)


@codelet
def scatter(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Computes the units lo <= unit < hi of the cut dimension: the copy, then all updates that overlap them."""
    given, positions = Scatter.read(parameters), parameters + 8 * Scatter.WORDS
    first, last = copied_range(given, lo, hi)
    components = positions + 8 * Dimension.WORDS * given.position_rank
    windows = components + 8 * IndexComponent.WORDS * given.index_components
    for position in range(given.positions):
        target, update, index, cut = offsets_at(positions, given.position_rank, position)
        inside = True
        for number in range(given.index_components):
            component = IndexComponent.read(components, number)
            address = given.indices + index + component.index_offset
            start = load_index(address, given.index_bytes, given.index_signed)
            inside = inside and 0 <= start <= component.largest_start
            target += start * component.operand_stride
            cut += start * component.along_cut
        begin, end = max(cut, first), min(cut + given.cut_window, last)
        if inside and begin < end:
            target += given.target + begin * given.cut_stride
            update += given.updates + (begin - cut) * given.cut_update_stride
            _combine_window(given, windows, target, update, end - begin)


def scatter_parts(work: ScatterWork) -> ScatterParts:
    """The parts of a scatter's block, for an operand with elements; the combiner is set later, as a call.

    Raises InternalError for numbers that do not fit the shapes.
    """
    plan, indices, updates = work.plan, work.indices.shape, work.updates.shape
    shape, numbers, cut = plan.operand, plan.numbers, plan.cut
    length, continues, window = plan.run()
    batching = dict(zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims, strict=True))
    largest = [size - part for size, part in zip(shape.dimensions, plan.sizes, strict=True)]
    dimensions = numbers.index_vector_dim, numbers.scatter_dims_to_operand_dims, batching, plan.strides, largest
    positions, components = position_dimensions(indices, *dimensions, plan.position_strides, cut)
    header = Scatter.of(
        work,
        index_bytes=indices.dtype.itemsize,
        index_signed=index_signed(indices),
        element_bytes=shape.dtype.itemsize,
        positions=prod(each.size for each in positions) if updates.elements else 0,
        position_rank=len(positions),
        index_components=len(components),
        window_rank=len(window),
        window_runs=prod(entry[0] for entry in window),
        cut_size=shape.dimensions[cut],
        cut_stride=plan.strides[cut],
        cut_window=plan.sizes[cut],
        cut_update_stride=plan.update_strides[cut],
        cut_chunk=plan.chunk(),
        cut_outer=prod(shape.dimensions[:cut]),
        run_length=length,
        cut_in_run=continues,
    )
    return header, positions, components, run_dimensions(window), work.others
