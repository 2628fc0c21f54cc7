"""Gradients of embedding tables that are never stored in memory: rows are summed where the optimizer reads them.

Three compute sets (zeros; a scatter-add of rows into them; a nest that reads the sums, as Adam's does) become two. The
first sorts the rows by chunks of the table. The second sums the rows of each chunk in scratch, and runs the nest on the
chunk. The nest may read several tables of sums, such as a gradient's and its squares'. Earlier nests that sum a
gradient's squares for a norm, or test whether it is finite, read the named rows alone. For the host only: a chip stores
the sums.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.codelets.rows.row_sums import RowSort, SummedRows, SummedTable
from engine.frozen import frozen
from engine.ir import Shape
from engine.program.nest import Apply, Constant, Input, Reduction
from engine.program.program import Address, Buffer, ComputeSet, Partition, Program, Span, WorkEstimate
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses, is_any_between
from engine.program.work.base import Array, Work
from engine.program.work.fused_loop import FusedLoop, Strided
from engine.program.work.indexing import ScatterWork

CHUNK_BYTES = 16384
"""Bytes of one unit's sums: with the other operands of the nest, they fit in the nearest cache."""
LEAST_BYTES = 1 << 15
"""Tables below this cost so little that a sort would not pay off."""
FEWEST_CHUNKS = 16
MOST_NAMED, FAR_BYTES = 2, 1 << 18
"""Sums in memory cost less than sorting if more rows are named than this multiple of a table's, with more than these
bytes, as by the edges of a graph: the rows of a chunk are far apart, and each waits for memory. Measured on a Zen 5."""


@frozen
class _Sums:
    """A scatter of `named` rows into zeros, whose sums only the loop `reading` reads, after the `reductions`.

    `reductions` maps the number of each reducing compute set to the number of its result's operand. `spread` are
    compute sets that only repeat rows, which are no longer needed.
    """

    at: int
    scatter: ComputeSet
    named: int
    rows: SummedTable
    spread: list[int]
    reading: int
    reductions: dict[int, int]
    grain: int

    @property
    def ids(self) -> Buffer:
        return self.scatter.reads[1].buffer


@frozen
class _Summing:
    """The sums of rows of tables with the same row numbers, sorted by chunks of 2**shift rows."""

    named: int
    tables: tuple[SummedTable, ...]
    ends: Buffer
    entries: Buffer
    shift: int

    @property
    def shape(self) -> Shape:
        return self.tables[0].table.shape

    @property
    def width(self) -> int:
        return self.shape.elements // self.shape.dimensions[0]

    @property
    def reads(self) -> list[Span]:
        return [Span(self.ends), Span(self.entries), *(Span(each.updates.buffer) for each in self.tables)]

    def is_table(self, buffer: Buffer) -> bool:
        return any(each.table is buffer for each in self.tables)

    def of(self, table: Buffer) -> _Summing:
        """The sums of one table alone."""
        return replace(self, tables=tuple(each for each in self.tables if each.table is table))

    def work(self, loop: FusedLoop) -> SummedRows:
        """A loop that reads the sums from scratch."""
        row_bytes = 4 * self.width
        return SummedRows(
            loop, self.tables, Address(self.ends), Address(self.entries), self.width, row_bytes << self.shift
        )

    def work_estimate(self, reader: ComputeSet) -> WorkEstimate:
        """Work of a reader together with the sums: its operations and multiply-adds, the scattered elements, and the
        look-ups.
        """
        estimate, named = reader.work_estimate, self.named * len(self.tables)
        elements = estimate.elements | {"scatter": named * self.width}
        return WorkEstimate(elements, estimate.multiply_adds, estimate.element_type, lookups=named)


def fuse_row_sums(program: Program) -> Program:
    """Fuses scatters of rows into zeros with the only fused loop that reads the sums, element by element.

    A loop may read several tables of sums, if rows have the same numbers in each.
    """
    found = [at for at, each in enumerate(program.compute_sets) if named_rows(each.work)]
    if not found:
        return program
    rewriter = ProgramRewriter(program)
    for at in found:
        if at not in rewriter.removed:
            _rewrite(rewriter, at, found)
    return rewriter.result()


def _rewrite(rewriter: ProgramRewriter, at: int, scatters: list[int]) -> None:
    """Replaces a scatter, others with the same row numbers and their reader, and removes compute sets that only they
    needed.
    """
    first = _sums(rewriter, at)
    if first is None or not _keeps(rewriter, first.ids, at, first.reading):
        return
    uses, reader, shape = rewriter.uses, rewriter.sets[first.reading], first.rows.table.shape
    later = [each for each in scatters if each > at and rewriter.sets[each].reads[1].buffer is first.ids]
    others = [_sums(rewriter, each) for each in later if each not in rewriter.removed]
    joined = [first]
    for each in others:
        if each is not None and each.rows.table.shape == shape:
            joined += [each] if (each.reading, each.grain) == (first.reading, first.grain) else []
    shift = _shift(shape)
    sort, ends, entries = _sort(first, shift)
    summing = _Summing(first.named, tuple(each.rows for each in joined), ends, entries, shift)
    rewriter.replace(at, sort)
    rewriter.remove([each.at for each in joined[1:]])
    rewriter.replace(first.reading, _fused(reader, summing, first.grain))
    for each in joined:
        for number, result in each.reductions.items():
            rewriter.replace(number, _reduced(rewriter.sets[number], summing.of(each.rows.table), result))
        rewriter.remove(each.spread)
    for zeros in (each.scatter.reads[0].buffer for each in joined):
        fill = _writer(uses, zeros)
        if fill is not None and uses.users(zeros) == [fill] and not uses.escapes(zeros):
            rewriter.remove([fill])


def _sums(rewriter: ProgramRewriter, at: int) -> _Sums | None:
    """A scatter of rows into zeros that can be summed where a loop reads the sums; None for others."""
    uses, scatter = rewriter.uses, rewriter.sets[at]
    named = named_rows(scatter.work)
    zeros, _, updates = (span.buffer for span in scatter.reads)
    table = scatter.writes[0].buffer
    *reducing, reading = [user for user in uses.users(table) if user != at] or [-1]
    if table.shape.bytes < LEAST_BYTES or table.kind != "arena" or zeros is table:
        return None
    if named > MOST_NAMED * table.shape.dimensions[0] and updates.shape.bytes > FAR_BYTES:
        return None
    fill = _writer(uses, zeros)
    if fill is None or min((reading, *reducing)) < at or not _is_zero_fill(rewriter.sets[fill]) or uses.escapes(table):
        return None
    results = [reduction_of(rewriter.sets[each], table) for each in reducing]
    reductions = {each: result for each, result in zip(reducing, results, strict=True) if result is not None}
    rows, begin, spread = _rows(rewriter, table, updates, updates.shape.bytes // named, at)
    grain = _grain(rewriter.sets[reading], table, 1 << _shift(table.shape))
    if len(reductions) < len(reducing) or grain is None or not _keeps(rewriter, rows.updates.buffer, begin, reading):
        return None
    return _Sums(at, scatter, named, rows, spread, reading, reductions, grain)


def named_rows(work: Work) -> int:
    """The number of whole f32 rows that a scatter adds to a table by row number; 0 for all other work."""
    if not isinstance(work, ScatterWork) or work.others or work.combine.opcode != "add":
        return 0
    table, ids, updates = (each.shape for each in (work.operand, work.indices, work.updates))
    numbers = work.numbers
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


def _rows(
    rewriter: ProgramRewriter, table: Buffer, updates: Buffer, width: int, at: int
) -> tuple[SummedTable, int, list[int]]:
    """The table of the rows, the compute set after which the rows must not change, and sets that only repeat rows.

    A row has `width` bytes.
    """
    plain = SummedTable(table, Address(updates), 1, width, 0), at, list[int]()
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
    return SummedTable(table, Address(source), repeat, outer, inner), copying, [copying]


def _keeps(rewriter: ProgramRewriter, buffer: Buffer, begin: int, end: int) -> bool:
    """Whether a buffer is unchanged from one compute set through another in the same loops."""
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
    """The grain of a reading nest for which a unit is one chunk; None if there is none.

    The nest has no reductions and reads the table of sums by one address.
    """
    loop = reader.work
    if not isinstance(loop, FusedLoop) or loop.nest.reductions or any(s.buffer is table for s in reader.writes):
        return None
    if [a.offset for a in loop.addresses if a.buffer is table] != [0]:
        return None
    partition = next(span.partition for span in reader.reads if span.buffer is table)
    width = table.shape.elements // table.shape.dimensions[0]
    if partition is None or partition.inner * partition.extent != table.shape.elements:
        return None
    return None if chunk_rows * width % partition.inner else chunk_rows * width // partition.inner


def _sort(sums: _Sums, shift: int) -> tuple[ComputeSet, Buffer, Buffer]:
    scatter, ids, rows = sums.scatter, sums.ids, sums.rows.table.shape.dimensions[0]
    chunks = -(-rows >> shift)
    ends = Buffer(f"{scatter.name}.ends", Shape("s64", (chunks,)))
    entries = Buffer(f"{scatter.name}.entries", Shape("s64", (sums.named,)))
    arrays = (Array(Address(each), each.shape) for each in (ids, ends, entries))
    numbers, *sorted_to = arrays
    sort = ComputeSet(
        f"{scatter.name}.sort",
        RowSort(numbers, rows, shift, *sorted_to),
        *(1, [Span(ids)], [Span(ends), Span(entries)]),
        WorkEstimate({"scatter": sums.named}, 0, "s32"),
        op_name=scatter.op_name,
        one_worker=True,
    )
    return sort, ends, entries


def _fused(reader: ComputeSet, summing: _Summing, grain: int) -> ComputeSet:
    """The reader with the sums computed in scratch."""
    assert isinstance(reader.work, FusedLoop)
    return ComputeSet(
        *(reader.name, summing.work(replace(reader.work, grain=grain))),
        -(-summing.shape.dimensions[0] >> summing.shift),
        [*(_cut(span, grain) for span in reader.reads if not summing.is_table(span.buffer)), *summing.reads],
        [_cut(span, grain) for span in reader.writes],
        summing.work_estimate(reader),
        op_name=reader.op_name,
    )


def _reduced(reader: ComputeSet, summing: _Summing, result: int) -> ComputeSet:
    """The reduction over the named rows alone."""
    from engine.codelets.rows.reduced_rows import ReducedRowsWork  # for few programs

    assert isinstance(reader.work, FusedLoop)
    named = summing.named
    elements = {opcode: named * summing.width for opcode in reader.work_estimate.elements}
    return replace(
        reader,
        work=ReducedRowsWork(summing.work(reader.work), result, named),
        reads=[*(span for span in reader.reads if not summing.is_table(span.buffer)), *summing.reads],
        work_estimate=summing.work_estimate(replace(reader, work_estimate=WorkEstimate(elements, 0, "f32"))),
    )


def _cut(span: Span, grain: int) -> Span:
    partition = span.partition
    return span if partition is None else Span(span.buffer, Partition(partition.inner, partition.extent, grain))


LEAST_GRAIN = 16
"""Fewest elements of a unit: the float32 lanes of the widest vectors."""


def reduction_of(compute_set: ComputeSet, table: Buffer) -> int | None:
    """The number of the result's operand if a compute set reduces a table and named rows suffice for it; else None."""
    loop = compute_set.work
    if not isinstance(loop, FusedLoop) or loop.nest.rank != 1 or not loop.nest.splits_reduction or loop.nest.stores:
        return None
    nest = loop.nest
    if len(nest.reductions) != 1 or loop.grain < LEAST_GRAIN:
        return None
    (reduction,) = nest.reductions
    if loop.extents[0] != table.shape.elements or not _takes_zeros(loop, reduction):
        return None
    return reduction.accesses[0] if [o for o in loop.operands_at(table) if _is_whole(o)] else None


def _is_whole(operand: Strided) -> bool:
    """Whether an operand runs over a table from its first element on."""
    return not operand.address.offset and operand.strides == (4,)


def _takes_zeros(loop: FusedLoop, reduction: Reduction) -> bool:
    """Whether a reduction sums squares of the one array that its loop reads, or tests that all elements are finite."""
    nodes = loop.nest.nodes
    value = nodes[reduction.values[0]]
    if not isinstance(value, Apply) or not isinstance(nodes[value.operands[0]], Input) or len(set(value.operands)) != 1:
        return False
    if any(not isinstance(node, Constant) for node in nodes if node not in (value, nodes[value.operands[0]])):
        return False
    kind = reduction.combine, value.operation.opcode, value.operation.element_type
    return kind in (("add", "multiply", "f32"), ("and", "is-finite", "pred"))
