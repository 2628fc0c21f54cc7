"""Gradients of embedding tables that never become memory: rows are added up where the optimizer reads their sums.

Three compute sets (zeros; a scatter-add of rows into them; a nest that reads the sums, as Adam's does) become two: the
rows are sorted by chunks of the table, and chunk by chunk they are added up in scratch and the nest runs on the chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from engine.codelets.gather import index_signed
from engine.codelets.row_sums import SortRows, sort_rows
from engine.emit.nest import Constant, Input
from engine.ir import Instruction, Shape
from engine.ops.apply import single_operation
from engine.program.program import Address, Buffer, ComputeSet, Effort, Partition, Program, Relocation, Span
from engine.program.removal import without
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.row_sums import SummedRows
from engine.program.work.words import Words

CHUNK_BYTES = 16384
"""Sums of one unit: with what the nest reads besides, they stay in the nearest cache."""
LEAST_BYTES = 1 << 15
"""Tables below this cost so little that a sort would not pay."""
FEWEST_CHUNKS = 16


@dataclass(eq=False, slots=True)
class RowScatter(ComputeSet):
    """A scatter; `named` says how many whole rows of f32 it adds to a table, by row number, 0 if it does not."""

    named: int = 0


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the row of position p lies: p // repeat * outer + p % repeat * inner bytes into a buffer."""

    buffer: Buffer
    repeat: int
    outer: int
    inner: int


def named_rows(instruction: Instruction) -> int:
    """How many whole rows a scatter adds to a table; 0 for a scatter of any other kind."""
    if len(instruction.operands) != 3 or single_operation(instruction.called[0]) != "add":
        return 0
    table, ids, updates = (o.array_shape for o in instruction.operands)
    numbers = instruction["scatter_dimension_numbers"]
    if table.element_type != "f32" or table.rank < 2 or numbers.input_batching_dims:
        return 0
    if numbers.inserted_window_dims != (0,) or numbers.scatter_dims_to_operand_dims != (0,):
        return 0
    window = tuple(range(updates.rank - table.rank + 1, updates.rank))
    if tuple(numbers.update_window_dims) != window or not updates.elements:
        return 0
    if updates.dimensions[updates.rank - table.rank + 1 :] != table.dimensions[1:]:
        return 0
    last = numbers.index_vector_dim == ids.rank or (
        numbers.index_vector_dim == ids.rank - 1 and ids.dimensions[-1] == 1
    )
    return ids.elements if last else 0


def sum_rows_where_read(program: Program) -> Program:
    """Replaces every scatter of rows into zeros whose sums one nest reads, as it reads its own element."""
    removed: set[int] = set()
    for at in range(len(program.compute_sets)):
        scatter = program.compute_sets[at]
        if isinstance(scatter, RowScatter) and scatter.named:
            removed |= _rewrite(program, at, removed)
    return without(program, sorted(removed)) if removed else program


def _rewrite(program: Program, at: int, gone: set[int]) -> set[int]:
    """Replaces the scatter and its reader in place; returns the compute sets that are no longer needed."""
    scatter = program.compute_sets[at]
    assert isinstance(scatter, RowScatter)
    zeros, ids, updates = (span.buffer for span in scatter.reads)
    table = scatter.writes[0].buffer
    readers = _users(program, table, gone) - {at}
    if table.shape.bytes < LEAST_BYTES or table.kind != "arena" or len(readers) != 1 or zeros is table:
        return set()
    (reading,) = readers
    reader = program.compute_sets[reading]
    fill = _writer(program, zeros, gone)
    if fill is None or reading < at or not _is_zero_fill(program.compute_sets[fill]) or table in program.outputs:
        return set()
    loop = _reading_loop(reader, table)
    rows, begin, spread = _rows(program, scatter, updates, at, gone)
    if loop is None or not _keeps(program, rows.buffer, begin, reading) or not _keeps(program, ids, at, reading):
        return set()
    shift = _shift(table.shape)
    grain = _grain(reader, table, 1 << shift)
    if grain is None:
        return set()
    sort, ends, entries = _sort(scatter, ids, table, shift)
    program.compute_sets[at] = sort
    program.compute_sets[reading] = _fused(reader, loop, scatter, table, rows, (ends, entries), shift, grain)
    unused = {fill} if not _users(program, zeros, gone) - {fill} and zeros not in program.outputs else set()
    return unused | spread


def _users(program: Program, buffer: Buffer, gone: set[int]) -> set[int]:
    return {
        at
        for at, each in enumerate(program.compute_sets)
        if at not in gone and any(span.buffer is buffer for span in (*each.reads, *each.writes))
    }


def _writer(program: Program, buffer: Buffer, gone: set[int]) -> int | None:
    """The one compute set that writes an arena buffer."""
    if buffer.kind != "arena" or buffer.permanent:
        return None
    found = [
        at
        for at, each in enumerate(program.compute_sets)
        if at not in gone and any(span.buffer is buffer for span in each.writes)
    ]
    return found[0] if len(found) == 1 else None


def _is_zero_fill(compute_set: ComputeSet) -> bool:
    """A nest that stores +0 everywhere."""
    loop = compute_set.work
    if not isinstance(loop, FusedLoop) or loop.nest.reductions or len(loop.nest.stores) != 1:
        return False
    if len(loop.nest.nodes) != 1:
        return False
    (node,) = loop.nest.nodes
    if isinstance(node, Constant):
        return float(node.value) == 0 and not node.value.startswith("-")
    if not isinstance(node, Input) or len(compute_set.reads) != 1:
        return False
    value = compute_set.reads[0].buffer.value
    return compute_set.reads[0].buffer.kind == "constant" and value is not None and not any(value.tobytes())


def _reading_loop(reader: ComputeSet, table: Buffer) -> FusedLoop | None:
    """The fused loop without reductions that reads the table of sums by one address, if the reader is one."""
    loop = reader.work
    if not isinstance(loop, FusedLoop) or loop.nest.reductions or any(s.buffer is table for s in reader.writes):
        return None
    return loop if [a.offset for a in loop.addresses if a.buffer is table] == [0] else None


def _rows(
    program: Program, scatter: RowScatter, updates: Buffer, at: int, gone: set[int]
) -> tuple[_Rows, int, set[int]]:
    """Where the rows lie, since which compute set, and the compute set that would only repeat them."""
    width = updates.shape.bytes // scatter.named
    plain = _Rows(updates, 1, width, 0), at, set[int]()
    copying = _writer(program, updates, gone)
    if copying is None or copying > at or _users(program, updates, gone) != {copying, at} or updates in program.outputs:
        return plain
    copied = program.compute_sets[copying]
    loop = copied.work
    if not isinstance(loop, FusedLoop) or loop.nest.reductions or len(loop.nest.nodes) != 1 or len(copied.reads) != 1:
        return plain
    source, extents = copied.reads[0].buffer, loop.extents
    (taken,), (put,) = loop.operands_at(source), loop.operands_at(updates)
    packed = tuple(4 * prod(extents[d + 1 :]) for d in range(len(extents)))
    if source.shape.element_type != "f32" or taken.address.offset or put.address.offset or put.strides != packed:
        return plain
    if len(extents) not in (2, 3) or 4 * extents[-1] != width or taken.strides[-1] != 4:
        return plain
    steps = taken.strides
    repeat, outer, inner = (extents[1], steps[0], steps[1]) if len(extents) == 3 else (1, steps[0], 0)
    if any(copying < mark.position <= at for mark in program.marks):
        return plain
    return _Rows(source, repeat, outer, inner), copying, {copying}


def _keeps(program: Program, buffer: Buffer, begin: int, end: int) -> bool:
    """Whether a buffer stays as it is from a compute set up to and with another, and both run equally often."""
    if any(begin < mark.position <= end for mark in program.marks):
        return False
    return not any(span.buffer is buffer for each in program.compute_sets[begin + 1 : end + 1] for span in each.writes)


def _shift(table: Shape) -> int:
    """A chunk has two to this power of rows."""
    rows, row_bytes = table.dimensions[0], table.bytes // table.dimensions[0]
    most = max(1, min(CHUNK_BYTES // row_bytes, rows // FEWEST_CHUNKS))
    return most.bit_length() - 1


def _grain(reader: ComputeSet, table: Buffer, chunk_rows: int) -> int | None:
    """The piece of its loop that the nest must take so that a unit is one chunk."""
    partition = next(span.partition for span in reader.reads if span.buffer is table)
    width = table.shape.elements // table.shape.dimensions[0]
    if partition is None or partition.inner * partition.extent != table.shape.elements:
        return None
    return None if chunk_rows * width % partition.inner else chunk_rows * width // partition.inner


def _sort(scatter: RowScatter, ids: Buffer, table: Buffer, shift: int) -> tuple[ComputeSet, Buffer, Buffer]:
    rows = table.shape.dimensions[0]
    chunks = -(-rows >> shift)
    ends = Buffer(f"{scatter.name}.ends", Shape("s64", (chunks,)))
    entries = Buffer(f"{scatter.name}.entries", Shape("s64", (scatter.named,)))
    parameters = np.zeros(SortRows.WORDS, np.int64)
    parameters[SortRows.INDEX_BYTES : SortRows.ENDS] = (
        *(ids.shape.dtype.itemsize, index_signed(ids.shape), scatter.named),
        *(rows, shift, chunks),
    )
    sort = ComputeSet(
        f"{scatter.name}.sort",
        Words.of(
            *(sort_rows, parameters),
            [
                Relocation(int(SortRows.IDS), Address(ids)),
                Relocation(int(SortRows.ENDS), Address(ends)),
                Relocation(int(SortRows.ENTRIES), Address(entries)),
            ],
        ),
        *(1, [Span(ids)], [Span(ends), Span(entries)]),
        Effort({"scatter": scatter.named}, 0, "s32"),
        op_name=scatter.op_name,
        one_worker=True,
    )
    return sort, ends, entries


def _fused(
    reader: ComputeSet,
    loop: FusedLoop,
    scatter: RowScatter,
    table: Buffer,
    rows: _Rows,
    sorted_rows: tuple[Buffer, Buffer],
    shift: int,
    grain: int,
) -> ComputeSet:
    """The reader with the sums made in scratch."""
    ends, entries = sorted_rows
    width = table.shape.elements // table.shape.dimensions[0]
    work = SummedRows(
        *(replace(loop, grain=grain), table, Address(ends), Address(entries), Address(rows.buffer)),
        *(rows.repeat, rows.outer, rows.inner, width, 4 * width << shift),
    )
    effort = Effort(
        reader.effort.elements | {"scatter": scatter.named * width},
        reader.effort.multiply_adds,
        reader.effort.element_type,
        lookups=scatter.named,
    )
    return ComputeSet(
        *(reader.name, work),
        -(-table.shape.dimensions[0] >> shift),
        [*(_cut(span, grain) for span in reader.reads if span.buffer is not table), *map(Span, (ends, entries))]
        + [Span(rows.buffer)],
        [_cut(span, grain) for span in reader.writes],
        effort,
        op_name=reader.op_name,
    )


def _cut(span: Span, grain: int) -> Span:
    partition = span.partition
    return span if partition is None else Span(span.buffer, Partition(partition.inner, partition.extent, grain))
