"""Sums over edges of a graph without arrays of edges: rows are gathered, multiplied by a number each, and scattered.

A scatter-add whose updates are gathered rows, or a nest's products of rows and one number each, computes them itself.
A gather stays if anything else reads its rows. For the host only: on a chip, rows are exchanged either way.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import prod
from typing import NamedTuple

from engine.codelets.language.encoded import CodeletWork
from engine.codelets.rows.scatter import scatter_parts
from engine.codelets.rows.scatter_rows import PLAIN_EDGES, SCALED_EDGES, EdgeSums, scatters_rows
from engine.host.passes.gathered_rows import are_kept, gathered, remove_unused, writer
from engine.program.nest import Apply, Input
from engine.program.program import Address, Buffer, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.fused_loop import FusedLoop, Strided
from engine.program.work.indexing import ScatterWork


class _Scale(NamedTuple):
    """The numbers by which rows are multiplied: the address of the first, and bytes from row to row."""

    address: Address
    step: int


def sum_edges(program: Program) -> Program:
    """Lets scatter-adds of rows read the rows where a gather would read them."""
    rewriter = ProgramRewriter(program)
    for at, each in enumerate(program.compute_sets):
        if isinstance(each.work, ScatterWork) and each.work.combine.opcode == "add":
            _fuse(rewriter, at, each.work)
    return rewriter.result()


def _fuse(rewriter: ProgramRewriter, at: int, work: ScatterWork) -> None:
    """Replaces scatter number `at` if its updates are gathered rows, and removes compute sets that only it needed."""
    parts = scatter_parts(work)
    if not scatters_rows(parts, work.operand.shape.element_type, "add"):
        return
    header, (position, *_), *_ = parts
    updates, row_bytes = header.updates.buffer, 4 * header.run_length * header.cut_window
    if header.updates.moved is not None or header.updates.offset:
        return
    if header.index_components != 1 or position.other != row_bytes or row_bytes == 4:
        return
    made = writer(rewriter, updates, at)
    if made is None:
        return
    source, scale = gathered(rewriter, updates, at), None
    if source is None:
        product = _product(rewriter.sets[made].work, updates, header.positions)
        if product is None:
            return
        rows, scale = product
        source = gathered(rewriter, rows, made)
    if source is None or not source.is_packed(header.positions, row_bytes):
        return
    needed = [*source.buffers, *([scale.address.buffer] if scale else ())]
    if not are_kept(rewriter, needed, source.at, at):
        return
    scales = {"scales": scale.address, "scale_step": scale.step} if scale else {"scales": 0, "scale_step": 0}
    head = EdgeSums(**vars(header) | {"updates": 0}, source=source.rows, **scales)
    scatter = rewriter.sets[at]
    reads = [span for span in scatter.reads if span.buffer is not updates]
    fused = CodeletWork(SCALED_EDGES if scale else PLAIN_EDGES, head, tuple(chain(*parts[1:])))
    rewriter.replace(at, replace(scatter, work=fused, reads=[*reads, *map(Span, dict.fromkeys(needed))]))
    remove_unused(rewriter, (made, source.at))


def _product(work: object, updates: Buffer, edges: int) -> tuple[Buffer, _Scale] | None:
    """Returns the array of rows and the numbers whose products a nest stores as updates; None for other nests."""
    if not isinstance(work, FusedLoop) or work.nest.reductions or len(work.nest.stores) != 1 or work.record is not None:
        return None
    nest, extents = work.nest, work.extents
    packed = tuple(4 * prod(extents[d + 1 :]) for d in range(len(extents)))
    made, put = nest.nodes[nest.stores[0].node], work.operands[nest.stores[0].access]
    if (
        len(extents) < 2
        or extents[0] != edges
        or len(nest.nodes) != 3
        or any(each.element_type != "f32" for each in nest.accesses)
    ):
        return None
    if not isinstance(made, Apply) or made.operation.opcode != "multiply" or not is_packed(put, packed):
        return None
    loads = [nest.nodes[number] for number in made.operands]
    operands = [work.operands[each.access] for each in loads if isinstance(each, Input)]
    if len(operands) != 2 or not isinstance(put, Strided) or put.address.buffer is not updates:
        return None
    for rows, scale in (operands, operands[::-1]):
        if isinstance(rows, Strided) and isinstance(scale, Strided) and is_packed(rows, packed):
            is_of_row = not any(scale.strides[1:]) and scale.address.moved is None
            if is_of_row and rows.address.buffer.shape.bytes == updates.shape.bytes:
                return rows.address.buffer, _Scale(scale.address, scale.strides[0])
    return None


def is_packed(operand: object, packed: tuple[int, ...]) -> bool:
    """Whether an operand is a whole array with these strides."""
    if not isinstance(operand, Strided) or operand.address.moved is not None:
        return False
    return operand.strides == packed and not operand.address.offset
