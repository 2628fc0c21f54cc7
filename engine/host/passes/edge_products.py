"""Sums of products of two gathered rows, as in attention over edges, without storing the rows.

A nest that adds up the products of two arrays of gathered rows, row by row, becomes a codelet that reads the rows where
the gathers would read them. A gather stays if anything else reads its rows. For the host only.
"""

from __future__ import annotations

from dataclasses import replace
from math import copysign

from engine.codelets.language.encoded import CodeletWork
from engine.codelets.rows.edge_products import EdgeProducts, edge_products
from engine.host.passes.edge_sums import is_packed
from engine.host.passes.gathered_rows import are_kept, gathered, remove_unused
from engine.program.nest import Apply, Constant, Input
from engine.program.program import Buffer, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.fused_loop import FusedLoop, Strided

FEWEST_EDGES = 1024
"""Fewest rows for which fusing is worth it."""


def multiply_edges(program: Program) -> Program:
    """Lets sums of products of rows read the rows where gathers would read them."""
    rewriter = ProgramRewriter(program)
    for at, each in enumerate(program.compute_sets):
        if isinstance(each.work, FusedLoop) and each.work.extents[0] >= FEWEST_EDGES:
            _fuse(rewriter, at, each.work)
    return rewriter.result()


def _fuse(rewriter: ProgramRewriter, at: int, loop: FusedLoop) -> None:
    """Replaces nest number `at` and removes gathers that only it needed."""
    product = _product(loop)
    if product is None:
        return
    edges, width = loop.extents
    first, second = (gathered(rewriter, each, at) for each in product)
    if first is None or second is None or first.at == second.at:
        return
    for each in (first, second):
        if not each.is_packed(edges, 4 * width) or not are_kept(rewriter, each.buffers, each.at, at):
            return
    (put,) = (loop.operands[number] for number in loop.written)
    assert isinstance(put, Strided)
    sizes = {"edges": edges, "chunk": loop.grain, "width": width}
    products = EdgeProducts(target=put.address, one=first.rows, other=second.rows, **sizes)
    reads = [Span(each) for each in dict.fromkeys((*first.buffers, *second.buffers))]
    replaced = rewriter.sets[at]
    rewriter.replace(at, replace(replaced, work=CodeletWork(edge_products, products), reads=reads))
    remove_unused(rewriter, (first.at, second.at))


def _product(loop: FusedLoop) -> tuple[Buffer, Buffer] | None:
    """Returns the two arrays whose products a nest adds up, row by row, from zero on; None for other nests."""
    nest = loop.nest
    if nest.reduced != (False, True) or nest.partition or nest.stores or len(nest.reductions) != 1:
        return None
    (reduction,) = nest.reductions
    if reduction.combine != "add" or len(nest.nodes) != 4 or loop.record is not None:
        return None
    if any(each.element_type != "f32" for each in nest.accesses) or reduction.element_types != ("f32",):
        return None
    made, initial = nest.nodes[reduction.values[0]], nest.nodes[reduction.initial[0]]
    if not isinstance(made, Apply) or made.operation.opcode != "multiply" or len(set(made.operands)) != 2:
        return None
    if not isinstance(initial, Constant) or float(initial.value) != 0 or copysign(1, float(initial.value)) < 0:
        return None
    loads = [nest.nodes[number] for number in made.operands]
    taken = [loop.operands[each.access] for each in loads if isinstance(each, Input)]
    packed, put = (4 * loop.extents[1], 4), loop.operands[reduction.accesses[0]]
    if len(taken) != 2 or not isinstance(put, Strided) or put.strides != (4, 0) or put.pitch or put.address.moved:
        return None
    buffers = [each.address.buffer for each in taken if isinstance(each, Strided) and is_packed(each, packed)]
    return (buffers[0], buffers[1]) if len(buffers) == 2 else None
