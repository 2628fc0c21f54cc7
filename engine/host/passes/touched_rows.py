"""Updates of embedding tables, such as Adam's, that read and write only the rows that batches have touched.

The moments of a row that no batch has named yet are zero, and so is its gradient. A nest is rewritten whose new values
are, for such a row, the same for all rows (new moments), or its own value plus or minus such a number. Then the codelet
finds out in each step whether these numbers are zeros. Tables whose rows change without gradients and moments, by
weight decay or as moving averages, are drifting: a separate nest changes these rows, without reading either.
For the host only: on a chip, rows cost no memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from engine.codelets.rows.row_sums import SummedRows
from engine.codelets.rows.touched_rows import DRIFT_PROBED, DRIFTING, KEPT, MOMENT, TouchedRowsWork
from engine.ir import Shape
from engine.program.buffer import LARGE_BYTES
from engine.program.nest import Apply, Constant, Input, MultiplyAdd, Nest, Node, Store
from engine.program.program import Address, Buffer, ComputeSet, Partition, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses
from engine.program.work.fused_loop import FusedLoop, Strided


def parts_of(nest: Nest, new: int, old: int) -> tuple[int, int] | None:
    """Returns nodes (base, other): new is base + other, base - other or other + base, and only base needs `old`."""
    made, dependents = nest.nodes[new], _dependents(nest, old)
    if not isinstance(made, Apply) or made.operation.opcode not in ("add", "subtract"):
        return None
    first, second = made.operands
    if (first in dependents) == (second in dependents) or (second in dependents and made.operation.opcode != "add"):
        return None
    return (first, second) if first in dependents else (second, first)


def _dependents(nest: Nest, on: int) -> set[int]:
    """A node and all that depend on it."""
    found = {on}
    for number, node in enumerate(nest.nodes):
        if isinstance(node, Apply) and any(each in found for each in node.operands):
            found.add(number)
    return found


def leaves(nest: Nest, node: int, without: Mapping[int, int]) -> set[int]:
    """The nodes without operands that a node depends on, where `without` maps nodes to others in their place."""
    return {each for each in _reached(nest, [node], without) if not isinstance(nest.nodes[each], Apply)}


def _reached(nest: Nest, nodes: Sequence[int], without: Mapping[int, int]) -> set[int]:
    found, pending = set[int](), list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            made = nest.nodes[node]
            pending += [without.get(o, o) for o in made.operands] if isinstance(made, Apply | MultiplyAdd) else []
    return found


def drift_of(nest: Nest, stores: Sequence[Store], without: Mapping[int, int]) -> Nest | None:
    """The nest with these stores and replacements, and the same accesses; None if it might round in another way."""
    from engine.emit.contraction import contracted  # with the emitter, for few programs

    nest = contracted(nest)
    order = sorted(_reached(nest, [each.node for each in stores], without))
    numbers = {node: number for number, node in enumerate(order)}
    made = [nest.nodes[node] for node in order]
    if any(isinstance(each, Apply) and each.operation.is_estimated for each in made):
        return None  # it would be contracted once more, by uses within the drift

    def numbered(nodes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(numbers[without.get(each, each)] for each in nodes)

    def renumbered(node: Node) -> Node:
        if isinstance(node, MultiplyAdd):
            (addend,) = numbered((node.addend,))
            return replace(node, factors=numbered(node.factors), addend=addend)
        return replace(node, operands=numbered(node.operands)) if isinstance(node, Apply) else node

    stored = tuple(replace(each, node=numbers[each.node]) for each in stores)
    return replace(nest, nodes=tuple(map(renumbered, made)), stores=stored)


Tables = tuple[tuple[int, int, int], ...]


def skip_untouched_rows(program: Program) -> Program:
    """Replaces each update of rows by sums that leaves untouched rows as they are, or lets them drift."""
    rewriter = ProgramRewriter(program)
    found = [at for at, each in enumerate(program.compute_sets) if isinstance(each.work, SummedRows)]
    for at in found:
        work = _skipping(rewriter.sets[at], rewriter.uses)
        if work is not None:
            rewriter.replace(at, _with_flags(rewriter.sets[at], work))
    return rewriter.result()


def _skipping(compute_set: ComputeSet, uses: BufferUses) -> TouchedRowsWork | None:
    summed = compute_set.work
    assert isinstance(summed, SummedRows)
    chunk_rows = summed.chunk_bytes // (4 * summed.width)
    inner = next((s.partition.inner for s in compute_set.writes if s.partition is not None), 0)
    if chunk_rows < 2 or summed.tables[0].table.shape.bytes < LARGE_BYTES or not inner or summed.width % inner:
        return None
    if any(address.moved is not None for address in summed.addresses):
        return None
    tables, drift = _updated_tables(summed, uses)
    if not tables or (drift is not None and chunk_rows < DRIFT_PROBED):
        return None
    rows = summed.tables[0].table.shape.elements // summed.width
    flags = Buffer(f"{compute_set.name}.touched", Shape("s8", (rows,)), permanent=True)
    counts = Buffer(f"{compute_set.name}.counts", Shape("s64", (compute_set.units,)), permanent=True)
    return TouchedRowsWork(summed, summed.width // inner, tables, Address(flags), Address(counts), drift)


def _updated_tables(summed: SummedRows, uses: BufferUses) -> tuple[Tables, Nest | None]:
    """Returns the tables that the update reads and writes in place, and the drift; no tables if any row may change."""
    loop, nest = summed.reader, summed.reader.nest
    loads = {n.access: k for k, n in enumerate(nest.nodes) if isinstance(n, Input)}
    found = []
    for store in nest.stores:
        load = next((a for a in loads if _are_same(loop, a, store.access)), None)
        buffer = None if load is None else _table(summed, load)
        if load is None or buffer is None or buffer.kind != "variable" or len(uses.writers(buffer)) != 1:
            return (), None
        is_read_elsewhere = len(uses.users(buffer)) != 1  # so it is more than a moment, and hardly zero
        found.append((load, store, is_read_elsewhere, parts_of(nest, store.node, loads[load])))
    own = {loads[load] for load, *_ in found}
    plain = own | (_even_nodes(summed, set()) - {k for a, k in loads.items() if _is_sums(summed, a)})
    bases = {s.node: p[0] for load, s, is_read, p in found if p is not None and (is_read or p[0] == loads[load])}
    tables, added, drifts, moments = [], list[int](), list[Store](), set[int]()
    for load, store, is_read_elsewhere, parts in found:
        base = bases.get(store.node, store.node)
        known = plain if base == store.node else plain - own | {loads[load]}
        kind = KEPT if base == loads[load] else DRIFTING if leaves(nest, base, bases) <= known else MOMENT
        if kind == MOMENT and is_read_elsewhere:
            return (), None
        if kind == MOMENT:
            moments.add(loads[load])
        elif kind == DRIFTING:
            drifts.append(replace(store, node=base))
        tables.append((load, store.access, kind))
        if base != store.node and parts is not None:
            added.append(parts[1])
        elif kind == MOMENT:
            added.append(store.node)
    even = _even_nodes(summed, moments)
    if any(moments & leaves(nest, each.node, bases) for each in drifts) or not all(node in even for node in added):
        return (), None
    if not drifts:
        return tuple(tables), None
    drift = drift_of(nest, drifts, bases)
    return (tuple(tables), drift) if moments and drift is not None else ((), None)


def _is_sums(summed: SummedRows, access: int) -> bool:
    operand = summed.reader.operands[access]
    return isinstance(operand, Strided) and summed.is_table(operand.address.buffer)


def _are_same(loop: FusedLoop, one: int, other: int) -> bool:
    return loop.operands[one] == loop.operands[other] and loop.nest.accesses[one] == loop.nest.accesses[other]


def _table(summed: SummedRows, access: int) -> Buffer | None:
    """Returns the buffer of an access that runs over a whole table like the sums, in row-major order; else None."""
    loop = summed.reader
    table, operand = summed.tables[0].table, loop.operands[access]
    packed = tuple(4 * prod(loop.extents[d + 1 :]) for d in range(len(loop.extents)))
    if any(sums.strides != packed for each in summed.tables for sums in loop.operands_at(each.table)):
        return None
    if not isinstance(operand, Strided) or operand.strides != packed or operand.address.offset:
        return None
    buffer = operand.address.buffer
    same = buffer.shape.elements == table.shape.elements and loop.nest.accesses[access].element_type == "f32"
    return buffer if same else None


def _even_nodes(summed: SummedRows, moments: set[int]) -> set[int]:
    """The nodes that are equal in all rows with zero sums and zero moments; `moments` are the nodes that load these."""
    nest, even = summed.reader.nest, set(moments)
    for number, node in enumerate(nest.nodes):
        if isinstance(node, Constant):
            even.add(number)
        elif isinstance(node, Input):
            operand = summed.reader.operands[node.access]
            if isinstance(operand, Strided) and (
                summed.is_table(operand.address.buffer) or not operand.strides[nest.partition]
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
