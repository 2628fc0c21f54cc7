"""A pass for activations that were stored long before: a product prefetches what is read after it.

The backward pass reads what the forward pass stored, from main memory, which a product hardly uses. For the host only.
"""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.products.contract_fields import MOST_AHEAD
from engine.host.unit_chain import UnitChain
from engine.program.program import Address, Buffer, ComputeSet, Program
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop

FAR_BYTES = 24 << 20
"""Bytes of arrays that other compute sets touch since an array was touched, from which on it has left the caches."""
LEAST_BYTES = 1 << 18
"""Fewest bytes of an array that is worth prefetching."""
MOST_SETS = 8
"""Compute sets after a product whose arrays it may prefetch: arrays of later ones would leave the near caches again."""


def prefetch_activations(program: Program) -> Program:
    """Names the arrays that products prefetch for what follows them; results are the same."""
    sets, touched, passed = list(program.compute_sets), dict[Buffer, int](), 0
    marked = {mark.position for mark in program.marks}
    for at, each in enumerate(sets):
        if _may_prefetch(each):
            assert isinstance(each.work, Contraction)
            following = _following(sets, at, marked) if passed >= FAR_BYTES else []
            read = dict.fromkeys(span.buffer for one in following for span in one.reads if span.slot is None)
            far = [buffer for buffer in read if passed - touched.get(buffer, passed) >= FAR_BYTES]
            ahead = [buffer for buffer in far if _fits(each.work, buffer)][:MOST_AHEAD]
            if ahead:
                sets[at] = replace(each, work=replace(each.work, ahead=tuple(map(Address, ahead))))
                touched |= dict.fromkeys(ahead, passed)
        for buffer in dict.fromkeys(span.buffer for span in (*each.reads, *each.writes)):
            touched[buffer] = passed
            passed += buffer.shape.bytes
    changed = any(new is not old for new, old in zip(sets, program.compute_sets, strict=True))
    return replace(program, compute_sets=sets) if changed else program


def _may_prefetch(product: ComputeSet) -> bool:
    """Whether units are blocks of whole rows of a float32 product."""
    work = product.work
    if not isinstance(work, Contraction) or not work.is_float32 or work.ahead:
        return False
    batches, rows, columns, _ = work.size
    return batches == work.splits == 1 and work.grid.columns >= columns and 4 * rows * columns >= LEAST_BYTES


def _following(sets: list[ComputeSet], product: int, marked: set[int]) -> list[ComputeSet]:
    """The loops and products right after a product, which run as often as it does."""
    found = list[ComputeSet]()
    for at in range(product + 1, min(product + 1 + MOST_SETS, len(sets))):
        work = sets[at].work
        links = [link.work for link in work.links] if isinstance(work, UnitChain) else [work]
        if at in marked or not all(isinstance(link, FusedLoop | Contraction) for link in links):
            break
        found.append(sets[at])
    return found


def _fits(product: Contraction, array: Buffer) -> bool:
    """Whether an array has equal parts for the rows of C, no larger than these, and is worth prefetching."""
    _, rows, columns, _ = product.size
    size = array.shape.bytes
    return LEAST_BYTES <= size <= 4 * rows * columns and size % rows == 0
