"""Gradients of embedding tables that are never stored in memory: rows are summed where the optimizer reads them.

Three compute sets (zeros; a scatter-add of rows into them; a nest that reads the sums, as Adam's does) become two: the
rows are sorted by chunks of the table, then for each chunk they are summed in scratch and the nest runs on it. Nests
before that, which sum the gradient's squares for a norm or test whether it is finite, read the rows that are named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from engine.codelets.gather import index_signed
from engine.codelets.row_sums import SortRows, sort_rows
from engine.emit.nest import Constant, Input
from engine.ir import Shape
from engine.program.passes.row_reductions import reduction_of
from engine.program.program import Address, Buffer, ComputeSet, Partition, Program, Span, WorkEstimate
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses, is_any_between
from engine.program.work.codelet_work import CodeletWork
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.reduced_rows import ReducedRowsWork
from engine.program.work.row_sums import SummedRows

CHUNK_BYTES = 16384
"""Bytes of one unit's sums: with the other operands of the nest, they fit in the nearest cache."""
LEAST_BYTES = 1 << 15
"""Tables below this cost so little that a sort would not pay off."""
FEWEST_CHUNKS = 16
MOST_NAMED, FAR_BYTES = 2, 1 << 18
"""Rows named, as a multiple of a table's, beyond which sums in memory cost less than sorting if the rows have more
bytes: the rows of a chunk are far apart, so each waits for memory, as those of the edges of a graph. On a Zen 5."""


@dataclass(eq=False, slots=True)
class RowScatter(ComputeSet):
    """A scatter; `named` is the number of whole f32 rows that it adds to a table by row number, 0 if it does not."""

    named: int = 0


@dataclass(frozen=True, slots=True)
class _Rows:
    """The row of position p starts p // repeat * outer + p % repeat * inner bytes into a buffer."""

    buffer: Buffer
    repeat: int
    outer: int
    inner: int


@dataclass(frozen=True, slots=True)
class _Summing:
    """The sums of a table's rows, sorted by chunks of 2**shift rows."""

    scatter: RowScatter
    table: Buffer
    rows: _Rows
    ends: Buffer
    entries: Buffer
    shift: int

    @property
    def width(self) -> int:
        return self.table.shape.elements // self.table.shape.dimensions[0]

    @property
    def reads(self) -> list[Span]:
        return [Span(self.ends), Span(self.entries), Span(self.rows.buffer)]

    def work(self, loop: FusedLoop) -> SummedRows:
        """A loop that reads the sums from scratch."""
        rows = self.rows
        return SummedRows(
            *(loop, self.table, Address(self.ends), Address(self.entries), Address(rows.buffer)),
            *(rows.repeat, rows.outer, rows.inner, self.width, 4 * self.width << self.shift),
        )

    def work_estimate(self, reader: ComputeSet) -> WorkEstimate:
        """That of a reader and of the sums."""
        estimate, named = reader.work_estimate, self.scatter.named
        elements = estimate.elements | {"scatter": named * self.width}
        return WorkEstimate(elements, estimate.multiply_adds, estimate.element_type, lookups=named)


def fuse_row_sums(program: Program) -> Program:
    """Fuses each scatter of rows into zeros with the fused loop that alone reads the sums, each its own element."""
    found = [at for at, each in enumerate(program.compute_sets) if isinstance(each, RowScatter) and each.named]
    if not found or program.exceptions is not None:
        return program
    rewriter = ProgramRewriter(program)
    for at in found:
        _rewrite(rewriter, at)
    return rewriter.result()


def _rewrite(rewriter: ProgramRewriter, at: int) -> None:
    """Replaces the scatter and its reader, and removes what only they needed, if that is possible."""
    uses, scatter = rewriter.uses, rewriter.sets[at]
    assert isinstance(scatter, RowScatter)
    zeros, ids, updates = (span.buffer for span in scatter.reads)
    table = scatter.writes[0].buffer
    *reducing, reading = [user for user in uses.users(table) if user != at] or [-1]
    if table.shape.bytes < LEAST_BYTES or table.kind != "arena" or zeros is table:
        return
    if scatter.named > MOST_NAMED * table.shape.dimensions[0] and updates.shape.bytes > FAR_BYTES:
        return
    fill = _writer(uses, zeros)
    if fill is None or min((reading, *reducing)) < at or not _is_zero_fill(rewriter.sets[fill]) or uses.escapes(table):
        return
    reductions = {each: reduction_of(rewriter.sets[each], table) for each in reducing}
    if None in reductions.values():
        return
    reader = rewriter.sets[reading]
    loop = _reading_loop(reader, table)
    rows, begin, spread = _rows(rewriter, scatter, updates, at)
    if loop is None or not _keeps(rewriter, rows.buffer, begin, reading) or not _keeps(rewriter, ids, at, reading):
        return
    shift = _shift(table.shape)
    grain = _grain(reader, table, 1 << shift)
    if grain is None:
        return
    sort, ends, entries = _sort(scatter, ids, table, shift)
    rewriter.replace(at, sort)
    summing = _Summing(scatter, table, rows, ends, entries, shift)
    rewriter.replace(reading, _fused(reader, loop, summing, grain))
    for each, result in reductions.items():
        assert result is not None
        rewriter.replace(each, _reduced(rewriter.sets[each], summing, result))
    rewriter.remove(spread)
    if uses.users(zeros) == [fill] and not uses.escapes(zeros):
        rewriter.remove([fill])


def _writer(uses: BufferUses, buffer: Buffer) -> int | None:
    """The only compute set that writes an arena buffer."""
    writers = uses.writers(buffer)
    return writers[0] if len(writers) == 1 and buffer.kind == "arena" and not buffer.permanent else None


def _is_zero_fill(compute_set: ComputeSet) -> bool:
    """Whether a compute set is a nest that stores +0 everywhere."""
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
    """The reader's fused loop, if it has no reductions and reads the table of sums by one address."""
    loop = reader.work
    if not isinstance(loop, FusedLoop) or loop.nest.reductions or any(s.buffer is table for s in reader.writes):
        return None
    return loop if [a.offset for a in loop.addresses if a.buffer is table] == [0] else None


def _rows(rewriter: ProgramRewriter, scatter: RowScatter, updates: Buffer, at: int) -> tuple[_Rows, int, list[int]]:
    """Address of the rows, the compute set from which they are there, and the one that would only repeat them."""
    width = updates.shape.bytes // scatter.named
    plain = _Rows(updates, 1, width, 0), at, list[int]()
    uses = rewriter.uses
    copying = _writer(uses, updates)
    if copying is None or copying > at or uses.users(updates) != [copying, at] or uses.escapes(updates):
        return plain
    copied = rewriter.sets[copying]
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
    if any(copying < mark.position <= at for mark in rewriter.program.marks):
        return plain
    return _Rows(source, repeat, outer, inner), copying, [copying]


def _keeps(rewriter: ProgramRewriter, buffer: Buffer, begin: int, end: int) -> bool:
    """Whether a buffer is unchanged from one compute set through another, which runs in the same iterations or some."""
    regions = [
        r for r in rewriter.program.regions if r.repeats and (r.begin <= begin < r.end) != (r.begin <= end < r.end)
    ]
    if regions or any(begin < mark.position <= end and mark.kind == "leave" for mark in rewriter.program.marks):
        return False
    return not is_any_between(rewriter.uses.writers(buffer), begin + 1, end + 1)


def _shift(table: Shape) -> int:
    """The binary logarithm of a chunk's number of rows."""
    rows, row_bytes = table.dimensions[0], table.bytes // table.dimensions[0]
    most = max(1, min(CHUNK_BYTES // row_bytes, rows // FEWEST_CHUNKS))
    return most.bit_length() - 1


def _grain(reader: ComputeSet, table: Buffer, chunk_rows: int) -> int | None:
    """The nest's grain for which a unit is one chunk; None if there is none."""
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
    parameters = SortRows(
        ids=Address(ids),
        index_bytes=ids.shape.dtype.itemsize,
        index_signed=index_signed(ids.shape),
        named=scatter.named,
        rows=rows,
        shift=shift,
        chunks=chunks,
        ends=Address(ends),
        entries=Address(entries),
    )
    sort = ComputeSet(
        f"{scatter.name}.sort",
        CodeletWork(sort_rows, parameters),
        *(1, [Span(ids)], [Span(ends), Span(entries)]),
        WorkEstimate({"scatter": scatter.named}, 0, "s32"),
        op_name=scatter.op_name,
        one_worker=True,
    )
    return sort, ends, entries


def _fused(reader: ComputeSet, loop: FusedLoop, summing: _Summing, grain: int) -> ComputeSet:
    """The reader with the sums computed in scratch."""
    table = summing.table
    return ComputeSet(
        *(reader.name, summing.work(replace(loop, grain=grain))),
        -(-table.shape.dimensions[0] >> summing.shift),
        [*(_cut(span, grain) for span in reader.reads if span.buffer is not table), *summing.reads],
        [_cut(span, grain) for span in reader.writes],
        summing.work_estimate(reader),
        op_name=reader.op_name,
    )


def _reduced(reader: ComputeSet, summing: _Summing, result: int) -> ComputeSet:
    """The reduction of the rows that are named."""
    assert isinstance(reader.work, FusedLoop)
    named = summing.scatter.named
    elements = {opcode: named * summing.width for opcode in reader.work_estimate.elements}
    return replace(
        reader,
        work=ReducedRowsWork(summing.work(reader.work), result, named),
        reads=[*(span for span in reader.reads if span.buffer is not summing.table), *summing.reads],
        work_estimate=summing.work_estimate(replace(reader, work_estimate=WorkEstimate(elements, 0, "f32"))),
    )


def _cut(span: Span, grain: int) -> Span:
    partition = span.partition
    return span if partition is None else Span(span.buffer, Partition(partition.inner, partition.extent, grain))
