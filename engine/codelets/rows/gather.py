"""HLO gather: copies slices of the operand, at clamped start indices, for any element type.

Parameters: `Gather`, then its BatchDimensions, IndexComponents and RunDimensions; strides and offsets in bytes. A run
of bytes is contiguous in operand and target. Unit: one index vector (a position of the batch dimensions, in row-major
order).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.codelets.host.rows import copy_bytes, word
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.memory import load_i8, load_i16, load_i32, load_i64, prefetch
from engine.codelets.language.record import Address, Record
from engine.errors import InternalError
from engine.ir.attributes import GatherDimensionNumbers
from engine.ir.shape import Shape
from engine.ir.strides import byte_strides, index_signed, merge

LARGEST = 2**63 - 1
# Tuned on two cores of a Xeon with AVX-512 (48 KiB first-level, 2 MiB second-level cache), November 2026:
AHEAD = 12  # slices by which prefetching precedes copying
MOST_LINES = 8  # cache lines of 64 bytes that are prefetched of a slice


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


class BatchDimension(Record):
    """A dimension of the positions of index vectors."""

    size: int
    index_stride: int
    operand_stride: int
    target_stride: int


class IndexComponent(Record):
    """A component of each index vector."""

    index_offset: int
    operand_stride: int
    largest_start: int


class RunDimension(Record):
    """A dimension of the runs of a slice."""

    size: int
    operand_stride: int
    target_stride: int


GatherParts = tuple[Gather, list[BatchDimension], list[IndexComponent], list[RunDimension]]


@inner
def load_index(address: int, size: int, signed: int) -> int:
    """An integer of 1, 2, 4 or 8 bytes; an unsigned one beyond int64 becomes the largest int64."""
    if size == 4:
        return load_i32(address) if signed else load_i32(address) & 0xFFFFFFFF
    if size == 8:
        value = load_i64(address)
        return value if signed or value >= 0 else LARGEST
    if size == 2:
        return load_i16(address) if signed else load_i16(address) & 0xFFFF
    return load_i8(address) if signed else load_i8(address) & 0xFF


@inner
def _copy_runs(parameters: int, table: int, source: int, target: int) -> None:
    """Copies one slice, run by run."""
    run_bytes, rank = word(parameters, Gather.RUN_BYTES), word(parameters, Gather.RUN_RANK)
    for index in range(word(parameters, Gather.RUNS)):
        rest, source_now, target_now = index, source, target
        for dimension in range(rank - 1, -1, -1):
            entry = table + 8 * RunDimension.WORDS * dimension
            size = word(entry, RunDimension.SIZE)
            coordinate = rest % size
            rest //= size
            source_now += coordinate * word(entry, RunDimension.OPERAND_STRIDE)
            target_now += coordinate * word(entry, RunDimension.TARGET_STRIDE)
        copy_bytes(target_now, source_now, run_bytes)


@inner
def fetch_lines(address: int, count: int) -> None:
    """Prefetches `count` bytes, but at most MOST_LINES lines: the hardware prefetcher follows."""
    for line in range(min((count + 63) >> 6, MOST_LINES)):
        prefetch(address + 64 * line)


@inner
def _fetch(parameters: int, batch: int, component: int, unit: int) -> None:
    """Prefetches the one run of a later unit, where a single index component determines it."""
    index = word(parameters, Gather.INDICES) + unit * word(batch, BatchDimension.INDEX_STRIDE)
    index += word(component, IndexComponent.INDEX_OFFSET)
    start = load_index(index, word(parameters, Gather.INDEX_BYTES), word(parameters, Gather.INDEX_SIGNED))
    source = word(parameters, Gather.OPERAND) + unit * word(batch, BatchDimension.OPERAND_STRIDE)
    start = min(max(start, 0), word(component, IndexComponent.LARGEST_START))
    source += start * word(component, IndexComponent.OPERAND_STRIDE)
    fetch_lines(source, word(parameters, Gather.RUN_BYTES))


@codelet
def gather(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[batch position, ...] = slice of the operand at the clamped start indices of that position."""
    index_bytes, signed = word(parameters, Gather.INDEX_BYTES), word(parameters, Gather.INDEX_SIGNED)
    batch_rank, components = word(parameters, Gather.BATCH_RANK), word(parameters, Gather.INDEX_COMPONENTS)
    batch_table = parameters + 8 * Gather.WORDS
    component_table = batch_table + 8 * BatchDimension.WORDS * batch_rank
    run_table = component_table + 8 * IndexComponent.WORDS * components
    plain = batch_rank == 1 and components == 1 and word(parameters, Gather.RUNS) == 1
    for unit in range(lo, hi):
        if plain and unit + AHEAD < hi:
            _fetch(parameters, batch_table, component_table, unit + AHEAD)
        rest, index, source = unit, word(parameters, Gather.INDICES), word(parameters, Gather.OPERAND)
        target = word(parameters, Gather.TARGET)
        for dimension in range(batch_rank - 1, -1, -1):
            entry = batch_table + 8 * BatchDimension.WORDS * dimension
            size = word(entry, BatchDimension.SIZE)
            coordinate = rest % size
            rest //= size
            index += coordinate * word(entry, BatchDimension.INDEX_STRIDE)
            source += coordinate * word(entry, BatchDimension.OPERAND_STRIDE)
            target += coordinate * word(entry, BatchDimension.TARGET_STRIDE)
        for component in range(components):
            entry = component_table + 8 * IndexComponent.WORDS * component
            start = load_index(index + word(entry, IndexComponent.INDEX_OFFSET), index_bytes, signed)
            start = min(max(start, 0), word(entry, IndexComponent.LARGEST_START))
            source += start * word(entry, IndexComponent.OPERAND_STRIDE)
        if word(parameters, Gather.RUNS) == 1:
            copy_bytes(target, source, word(parameters, Gather.RUN_BYTES))
        else:
            _copy_runs(parameters, run_table, source, target)


def index_layout(indices: Shape, index_vector_dim: int) -> tuple[list[int], list[int], int]:
    """Sizes and byte strides of the index positions, and the byte stride along the index vector."""
    strides = byte_strides(indices)
    positions = [d for d in range(indices.rank) if d != index_vector_dim]
    along = strides[index_vector_dim] if index_vector_dim < indices.rank else 0
    return [indices.dimensions[d] for d in positions], [strides[d] for d in positions], along


def encode_gather(
    operand: tuple[Shape, Address],
    indices: tuple[Shape, Address],
    target: tuple[Shape, Address],
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
) -> tuple[GatherParts, int]:
    """The parts of `gather`'s block and its number of units; operand, indices and target are (shape, address).

    Raises InternalError for indices that are no integers and for a target whose rank contradicts `numbers`.
    """
    (operand_shape, _), (index_shape, _), (target_shape, _) = operand, indices, target
    sizes, index_strides, along = index_layout(index_shape, numbers.index_vector_dim)
    if target_shape.rank != len(sizes) + len(numbers.offset_dims):
        expected = len(sizes) + len(numbers.offset_dims)
        raise InternalError(f"Expected a result of rank {expected}. Received: {target_shape}.")
    strides, target_strides = byte_strides(operand_shape), byte_strides(target_shape)
    batch = _batch_table(sizes, index_strides, strides, target_strides, numbers, index_shape.rank)
    components = [
        (along * k, strides[d], operand_shape.dimensions[d] - slice_sizes[d])
        for k, d in enumerate(numbers.start_index_map)
    ]
    skipped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [d for d in range(operand_shape.rank) if d not in skipped]
    offsets = zip(window, sorted(numbers.offset_dims), strict=True)
    runs = merge([(slice_sizes[d], strides[d], target_strides[o]) for d, o in offsets])
    itemsize = operand_shape.dtype.itemsize
    run_bytes = itemsize
    if runs and runs[-1][1:] == (itemsize, itemsize):
        run_bytes *= runs.pop()[0]
    header = Gather(
        operand=operand[1],
        indices=indices[1],
        target=target[1],
        index_bytes=index_shape.dtype.itemsize,
        index_signed=index_signed(index_shape),
        run_bytes=run_bytes,
        runs=prod(run[0] for run in runs),
        batch_rank=len(batch),
        index_components=len(components),
        run_rank=len(runs),
    )
    tables = BatchDimension.of_each(batch), IndexComponent.of_each(components), RunDimension.of_each(runs)
    units = prod(sizes) if target_shape.elements else 0
    return (header, *tables), units


def _batch_table(
    sizes: list[int],
    index_strides: list[int],
    strides: list[int],
    target_strides: list[int],
    numbers: GatherDimensionNumbers,
    index_rank: int,
) -> list[tuple[int, ...]]:
    """(size, index stride, operand stride, target stride) of each batch dimension."""
    positions = [d for d in range(index_rank) if d != numbers.index_vector_dim]
    pairs = zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True)
    operand_strides = {index_dim: strides[operand_dim] for index_dim, operand_dim in pairs}
    outputs = [stride for d, stride in enumerate(target_strides) if d not in numbers.offset_dims]
    return merge(
        [
            (size, index_stride, operand_strides.get(position, 0), output)
            for size, index_stride, position, output in zip(sizes, index_strides, positions, outputs, strict=True)
        ]
    )
