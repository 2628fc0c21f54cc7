"""HLO gather: copies slices of the operand, at clamped start indices, for any element type.

Parameters: `Gather`, then the Dimensions of positions, the IndexComponents and the Dimensions of runs. A run of bytes
is contiguous in operand and target. Unit: one index vector (a position of the batch dimensions, in row-major order).
"""

from __future__ import annotations

from math import prod

from engine.codelets.host.rows import copy_bytes
from engine.codelets.language.build import codelet
from engine.codelets.language.record import Address, Record
from engine.codelets.rows.index_walk import (
    Dimension,
    IndexComponent,
    load_index,
    offsets_at,
    position_dimensions,
    run_dimensions,
)
from engine.errors import InternalError
from engine.ir.strides import byte_strides, index_signed, merge
from engine.program.work.indexing import GatherWork


class Gather(Record):
    """The header of the parameters."""

    operand: Address = 0
    indices: Address = 0
    target: Address = 0
    index_bytes: int
    index_signed: int
    run_bytes: int
    runs: int  # in one slice
    batch_rank: int
    index_components: int
    run_rank: int


GatherParts = tuple[Gather, list[Dimension], list[IndexComponent], list[Dimension]]


@codelet
def gather(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[batch position, ...] = slice of the operand at the clamped start indices of that position."""
    given, batch = Gather.read(parameters), parameters + 8 * Gather.WORDS
    components = batch + 8 * Dimension.WORDS * given.batch_rank
    runs = components + 8 * IndexComponent.WORDS * given.index_components
    for unit in range(lo, hi):
        source, target, index, _ = offsets_at(batch, given.batch_rank, unit)
        for number in range(given.index_components):
            component = IndexComponent.read(components, number)
            address = given.indices + index + component.index_offset
            start = load_index(address, given.index_bytes, given.index_signed)
            source += min(max(start, 0), component.largest_start) * component.operand_stride
        for run in range(given.runs):
            here, there, _, _ = offsets_at(runs, given.run_rank, run)
            copy_bytes(given.target + target + there, given.operand + source + here, given.run_bytes)


def gather_parts(work: GatherWork) -> GatherParts:
    """The parts of a gather's block.

    Raises InternalError for indices that are no integers and for a target whose rank contradicts the numbers.
    """
    numbers, operand, indices, target = work.numbers, work.operand.shape, work.indices.shape, work.target.shape
    rank = indices.rank - (numbers.index_vector_dim < indices.rank) + len(numbers.offset_dims)
    if target.rank != rank:
        raise InternalError(f"Expected a result of rank {rank}. Received: {target}.")
    strides, target_strides = byte_strides(operand), byte_strides(target)
    batching = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    others = [stride for d, stride in enumerate(target_strides) if d not in numbers.offset_dims]
    largest = [size - part for size, part in zip(operand.dimensions, work.slice_sizes, strict=True)]
    dimensions = numbers.index_vector_dim, numbers.start_index_map, batching, strides, largest, others
    batch, components = position_dimensions(indices, *dimensions)
    skipped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [d for d in range(operand.rank) if d not in skipped]
    offsets = zip(window, sorted(numbers.offset_dims), strict=True)
    runs = merge([(work.slice_sizes[d], strides[d], target_strides[o]) for d, o in offsets])
    run_bytes = itemsize = operand.dtype.itemsize
    if runs and runs[-1][1:] == (itemsize, itemsize):
        run_bytes *= runs.pop()[0]
    header = Gather.of(
        work,
        index_bytes=indices.dtype.itemsize,
        index_signed=index_signed(indices),
        run_bytes=run_bytes,
        runs=prod(run[0] for run in runs),
        batch_rank=len(batch),
        index_components=len(components),
        run_rank=len(runs),
    )
    return header, batch, components, run_dimensions(runs)
