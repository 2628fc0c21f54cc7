"""Updates of embedding tables that leave untouched rows as they are, such as Adam's, read and write touched ones only.

The moments of a row that no batch has named yet are zero, and so is its gradient. A nest is rewritten whose new values
are, for such a row, the same for all rows (new moments), or its own value plus or minus such a number. Then the codelet
finds out in each step whether these numbers are zeros. For the host only: on a chip, rows cost no memory bandwidth.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.emit.nest import Apply, Constant, Input, Nest
from engine.ir import Shape
from engine.program.buffer import LARGE_BYTES
from engine.program.program import Address, Buffer, ComputeSet, Partition, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses
from engine.program.work.fused_loop import FusedLoop, Strided
from engine.program.work.row_sums import SummedRows
from engine.program.work.touched_rows import TouchedRowsWork

Tables = tuple[tuple[int, int, bool], ...]


def skip_untouched_rows(program: Program) -> Program:
    """Replaces every update of rows by sums that is known to keep untouched rows, with zeros for some moments."""
    rewriter = ProgramRewriter(program)
    found = [at for at, each in enumerate(program.compute_sets) if isinstance(each.work, SummedRows)]
    for at in found:
        work = _skipping(rewriter.sets[at], rewriter.uses)
        if work is not None:
            rewriter.replace(at, _with_flags(rewriter.sets[at], work))
    return rewriter.result() if found else program


def _skipping(compute_set: ComputeSet, uses: BufferUses) -> TouchedRowsWork | None:
    summed = compute_set.work
    assert isinstance(summed, SummedRows)
    chunk_rows = summed.chunk_bytes // (4 * summed.width)
    inner = next((s.partition.inner for s in compute_set.writes if s.partition is not None), 0)
    if chunk_rows < 2 or summed.table.shape.bytes < LARGE_BYTES or not inner or summed.width % inner:
        return None
    if any(address.moved is not None for address in summed.addresses):
        return None
    tables = _updated_tables(summed, uses)
    if tables is None:
        return None
    rows = summed.table.shape.elements // summed.width
    flags = Buffer(f"{compute_set.name}.touched", Shape("s8", (rows,)), permanent=True)
    counts = Buffer(f"{compute_set.name}.counts", Shape("s64", (compute_set.units,)), permanent=True)
    return TouchedRowsWork(summed, summed.width // inner, tables, Address(flags), Address(counts))


def _updated_tables(summed: SummedRows, uses: BufferUses) -> Tables | None:
    """The tables that the update reads and writes in place, if untouched rows of them stay as they are."""
    loop, nest = summed.reader, summed.reader.nest
    loads = {n.access: k for k, n in enumerate(nest.nodes) if isinstance(n, Input)}
    tables, new = [], []
    for store in nest.stores:
        load = next((a for a in loads if _are_same(loop, a, store.access)), None)
        buffer = None if load is None else _table(summed, load)
        if load is None or buffer is None or buffer.kind != "variable" or len(uses.writers(buffer)) != 1:
            return None
        added = _added(nest, store.node, loads[load])
        if added is None and len(uses.users(buffer)) != 1:
            return None  # what is read elsewhere, too, is more than a moment, and hardly zero
        tables.append((load, store.access, added is None))
        new.append(store.node if added is None else added)
    even = _even_nodes(summed, {loads[load] for load, _, is_moment in tables if is_moment})
    return tuple(tables) if all(node in even for node in new) else None


def _are_same(loop: FusedLoop, one: int, other: int) -> bool:
    return loop.operands[one] == loop.operands[other] and loop.nest.accesses[one] == loop.nest.accesses[other]


def _table(summed: SummedRows, access: int) -> Buffer | None:
    """The buffer of an access that runs over a whole table as the sums', in row-major order; None for others."""
    loop = summed.reader
    operand, (sums,) = loop.operands[access], loop.operands_at(summed.table)
    packed = tuple(4 * prod(loop.extents[d + 1 :]) for d in range(len(loop.extents)))
    if not isinstance(operand, Strided) or not operand.strides == sums.strides == packed or operand.address.offset:
        return None
    buffer = operand.address.buffer
    same = buffer.shape.elements == summed.table.shape.elements and loop.nest.accesses[access].element_type == "f32"
    return buffer if same else None


def _added(nest: Nest, node: int, old: int) -> int | None:
    """The node that a new value adds to the old one or subtracts from it, if that does not depend on the old one."""
    made = nest.nodes[node]
    if not isinstance(made, Apply) or made.operation.opcode not in ("add", "subtract") or old not in made.operands:
        return None
    first, second = made.operands
    if second == old and made.operation.opcode == "subtract":
        return None
    other = second if first == old else first
    return None if other in _dependents(nest, old) else other


def _dependents(nest: Nest, on: int) -> set[int]:
    """A node and all that depend on it."""
    found = {on}
    for number, node in enumerate(nest.nodes):
        if isinstance(node, Apply) and any(each in found for each in node.operands):
            found.add(number)
    return found


def _even_nodes(summed: SummedRows, moments: set[int]) -> set[int]:
    """The nodes that are equal in all rows whose sum and moments, given by the nodes that load them, are zero."""
    nest, even = summed.reader.nest, set(moments)
    for number, node in enumerate(nest.nodes):
        if isinstance(node, Constant):
            even.add(number)
        elif isinstance(node, Input):
            operand = summed.reader.operands[node.access]
            if isinstance(operand, Strided) and (
                operand.address.buffer is summed.table or not operand.strides[nest.partition]
            ):
                even.add(number)
        elif isinstance(node, Apply) and all(each in even for each in node.operands):
            even.add(number)
    return even


def _with_flags(compute_set: ComputeSet, work: TouchedRowsWork) -> ComputeSet:
    flags, counts = work.flags.buffer, work.counts.buffer
    chunk_rows = work.summed.chunk_bytes // (4 * work.summed.width)
    own = [
        Span(flags, Partition(1, flags.shape.elements, chunk_rows)),
        Span(counts, Partition(1, counts.shape.elements, 1)),
    ]
    return replace(compute_set, work=work, reads=[*compute_set.reads, *own], writes=[*compute_set.writes, *own])
