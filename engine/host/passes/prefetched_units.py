"""Prefetching of the next head's operands before a head of an attention is computed.

A unit's product of a head takes about as long as reading its operands from beyond the caches. For the host only.
"""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.products.contract_fields import NextUnit
from engine.host.unit_chain import UnitChain, with_work
from engine.machine_code.costs import costs
from engine.program.program import Buffer, ComputeSet, Program
from engine.program.rewriter import with_each
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import rows_together

LEAST_SHARE = 1 / 4
"""Share of a worker's cache from which both operands together are prefetched: smaller ones may still be there."""
MOST_UNIT_SHARE = 1 / 16
"""Largest share of a worker's cache for both operands of a batch: the next unit's must not displace this unit's."""
LEAST_SIDE = 16
"""Rows, and columns, of a product from which prefetching pays: with fewer it waits for memory in any case."""


def prefetch_units(program: Program) -> Program:
    """Marks the operands that batched products prefetch for their next unit; results are the same."""
    return with_each(program, _prefetching)


def _prefetching(each: ComputeSet) -> ComputeSet:
    near = {span.buffer for span in each.writes}
    if isinstance(each.work, UnitChain):
        near |= {buffer for buffer, _ in each.work.own}
    return with_work(each, lambda work: _of_product(work, near))


def _of_product(work: Work, near: set[Buffer]) -> Work:
    """Marks the operands of a product that are in memory far away; returns other work as it is."""
    if not isinstance(work, Contraction) or not work.is_float32 or not _is_of_heads(work):
        return work
    along_k = work.run_a == len(work.k_a)
    a_in_lines = along_k or rows_together(work.row_a.table, 4) == 1
    wanted = 0
    if a_in_lines and work.a.buffer not in near:
        wanted += NextUnit.A
    if work.b.buffer not in near:
        wanted += NextUnit.B
    return replace(work, next_unit=wanted) if wanted else work


def _is_of_heads(work: Contraction) -> bool:
    """Whether each unit has rows of one batch, and batches are small, but large together."""
    batches, rows, columns, k = work.size
    if batches < 2 or work.panels or work.splits > 1 or columns > work.grid.columns or min(rows, columns) < LEAST_SIDE:
        return False
    batch_bytes, cache = 4 * k * (rows + columns), costs().cache_bytes
    return batch_bytes <= MOST_UNIT_SHARE * cache and batch_bytes * batches >= LEAST_SHARE * cache
