"""The divisors of softmax: sums of exponentials. The library's softmax multiplies with their inverses."""

from __future__ import annotations

from collections.abc import Sequence

from engine.profile.vertices import before_conversions, buffers_of, terms_of
from engine.program.program import Buffer, ComputeSet
from engine.program.work.fused_loop import FusedLoop


def exponential_sums(compute_sets: Sequence[ComputeSet]) -> frozenset[Buffer]:
    """The arrays of a program that are sums of exponentials."""
    found = set[Buffer]()
    for each in compute_sets:
        if isinstance(each.work, FusedLoop):
            found |= _sums(each, each.work, found)
    return frozenset(found)


def _sums(compute_set: ComputeSet, loop: FusedLoop, known: set[Buffer]) -> set[Buffer]:
    """The sums that one compute set writes: of exponentials, or of partial sums of them."""
    buffers, terms = buffers_of(compute_set, loop), terms_of(loop.nest)
    found = set()
    for reduction in loop.nest.reductions:
        value = before_conversions(terms, reduction.values[0])
        if reduction.combine == "add" and (value.opcode == "exponential" or buffers.get(value.access) in known):
            found |= {buffers[access] for access in reduction.accesses if access in buffers}
    return found
