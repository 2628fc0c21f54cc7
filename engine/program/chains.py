"""Chains: neighbouring compute sets that a worker may do unit by unit, while a unit's data is in its cache."""

from __future__ import annotations

from engine.program.program import ComputeSet, Span
from engine.program.syncs import Place

WORTH_BYTES = 1 << 17
"""What one compute set hands to the next must be larger than this: smaller data stay in the cache anyway."""


def chain_lengths(compute_sets: list[ComputeSet], waits: list[bool], place: Place) -> list[int]:
    """For each compute set the length of the chain it begins; 1 for those alone and for those inside a chain."""
    lengths = [1] * len(compute_sets)
    first = 0
    for at in range(1, len(compute_sets)):
        chain = compute_sets[first:at]
        if not waits[at] and _joins(chain, compute_sets[at], place):
            lengths[first] = at - first + 1
        else:
            first = at
    return lengths


def _joins(chain: list[ComputeSet], new: ComputeSet, place: Place) -> bool:
    """Whether unit u of `new` may run right after unit u of the chain, and gains from it."""
    if new.units < 2 or any(c.units != new.units or c.one_worker != new.one_worker for c in chain):
        return False
    if not all(_independent(old, new, place) for old in chain):
        return False
    written = {span.buffer for span in chain[-1].writes}
    return any(s.buffer in written and s.buffer.shape.bytes >= WORTH_BYTES for s in new.reads)


def _independent(old: ComputeSet, new: ComputeSet, place: Place) -> bool:
    """Whether units of the two with different numbers never touch the same memory, one of them writing."""
    pairs = [(w, s) for w in old.writes for s in (*new.reads, *new.writes)]
    pairs += [(r, w) for r in old.reads for w in new.writes]
    return all(_same_pieces(a, b) or _apart(a, b, place) for a, b in pairs)


def _same_pieces(a: Span, b: Span) -> bool:
    return a.buffer is b.buffer and a.partition is not None and a.partition == b.partition


def _apart(a: Span, b: Span, place: Place) -> bool:
    if a.buffer.kind == "constant" or b.buffer.kind == "constant":
        return True
    (start, stop), (begin, end) = place(a.buffer), place(b.buffer)
    return stop <= begin or end <= start
