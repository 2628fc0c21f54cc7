"""A pass that computes short rows side by side, a row in each lane, where a vector would hold only a few elements.

Scores of a few classes for each pixel are such rows. A row by itself takes masked vectors and a reduction over lanes;
rows in lanes take a strided load of each column. For the host only: units keep their rows.
"""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.language.lanes import ITEM_BYTES, is_complex
from engine.host.unit_chain import with_works
from engine.machine_code.processor import lanes
from engine.program.nest import Access
from engine.program.program import Program
from engine.program.work.fused_loop import Count, FusedLoop

MOST_REDUCED, MOST_OF_FUNCTIONS, MOST_COLUMNS = 6, 4, 3
"""Most elements of rows that are reduced, of those with functions such as powers, and of others, timed on a Zen 4."""
MOST_STRIDED = 24
"""Most elements of a row, of all its arrays, that are loaded or stored one by one."""
LEAST_VECTORS = 4
"""Fewest vectors of rows in a unit."""


def put_rows_in_lanes(program: Program) -> Program:
    """Exchanges the last two loops of nests with short rows, also inside chains; sums over rows have another order."""
    return with_works(program, lambda work: _exchanged(work) if type(work) is FusedLoop and _is_short(work) else work)


def _is_short(work: FusedLoop) -> bool:
    """Whether the last loop has few elements, and a unit many rows."""
    nest, rank = work.nest, work.nest.rank
    if rank < 2 or nest.reduced[-2] or nest.partition == rank - 1 or nest.exceptions or nest.period:
        return False
    rows = work.extents[-2] if nest.partition != rank - 2 else min(work.grain, work.extents[-2])
    if rows < LEAST_VECTORS * lanes() or any(is_complex(each.element_type) for each in nest.accesses):
        return False
    from engine.emit.interleaving import has_long_chains  # with the emitter, for few programs

    strided = sum(_inner(work, number) == "strided" for number in range(len(nest.accesses)))
    most = MOST_REDUCED if nest.reduced[-1] else MOST_OF_FUNCTIONS if has_long_chains(nest) else MOST_COLUMNS
    return 1 < work.extents[-1] < lanes() and work.extents[-1] <= most and strided * work.extents[-1] <= MOST_STRIDED


def _inner(work: FusedLoop, number: int) -> str:
    """Access of an array along the loop before the last one."""
    operand = work.operands[number]
    if isinstance(operand, Count):
        return "contiguous"
    stride = operand.strides[-2]
    return {0: "splat", ITEM_BYTES[work.nest.accesses[number].element_type]: "contiguous"}.get(stride, "strided")


def _exchanged(work: FusedLoop) -> FusedLoop:
    nest, last = work.nest, work.nest.rank - 1
    *outer, rows, columns = range(work.nest.rank)
    order = (*outer, columns, rows)
    exchanged = replace(
        nest,
        reduced=tuple(nest.reduced[each] for each in order),
        partition=last if nest.partition == last - 1 else nest.partition,
        accesses=tuple(Access(each.element_type, _inner(work, at)) for at, each in enumerate(nest.accesses)),
    )
    operands = tuple(replace(each, strides=tuple(each.strides[at] for at in order)) for each in work.operands)
    return replace(work, nest=exchanged, extents=tuple(work.extents[each] for each in order), operands=operands)
