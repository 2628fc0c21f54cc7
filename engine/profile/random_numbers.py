"""Random numbers as a chip makes them: the vertices of its library generate their own bits, from a seed of the chip.

A program derives a key from a seed, generates bits with the key, and makes numbers of the bits. A chip has the bits in
hardware, so keys cost nothing, and bits only where they are the numbers. Masks are generated again, not stored.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from engine.profile.vertices import RANDOM_BITS, LibraryFacts, buffers_of, random_terms, terms_of, work_of
from engine.program.program import Buffer, ComputeSet
from engine.program.work.fused_loop import FusedLoop

DISTRIBUTIONS = frozenset({"bernoulli", "dropout", "normal"})
"""Vertices that generate their own bits."""
Readers = dict[Buffer, list[ComputeSet]]


def generators(compute_sets: Sequence[ComputeSet]) -> LibraryFacts:
    """The random arrays of a program, and what a chip need not compute for them."""
    makers = [each for each in compute_sets if RANDOM_BITS in each.work_estimate.elements]
    if not makers:
        return LibraryFacts()
    random = {span.buffer for each in makers for span in each.writes}
    readers: Readers = {}
    for each in compute_sets:
        random |= _masks(each, random)
        for span in each.reads:
            readers.setdefault(span.buffer, []).append(each)
    found = LibraryFacts(frozenset(random))
    drawn = frozenset(each for each in makers if _all_draw({s.buffer for s in each.writes}, readers, found))
    keys = _keys(compute_sets, readers, makers)
    absent = {span.buffer for each in drawn | keys for span in each.writes}
    absent |= {buffer for buffer in random if _all_draw({buffer}, readers, found)}
    return LibraryFacts(found.random, drawn, keys, frozenset(absent))


def _masks(compute_set: ComputeSet, random: set[Buffer]) -> set[Buffer]:
    """The masks that a compute set makes of random bits alone."""
    loop = compute_set.work
    if not isinstance(loop, FusedLoop) or not any(span.buffer in random for span in compute_set.reads):
        return set()
    buffers, terms = buffers_of(compute_set, loop), terms_of(loop.nest)
    known = random_terms(terms, {access for access, buffer in buffers.items() if buffer in random})
    stored = (s for s in loop.nest.stores if s.node in known and terms[s.node].element_type == "pred")
    return {buffers[store.access] for store in stored if store.access in buffers}


def _all_draw(buffers: Set[Buffer], readers: Readers, library: LibraryFacts) -> bool:
    """Whether all that reads random bits, or masks of them, are vertices that generate their own."""
    users = [each for buffer in buffers for each in readers.get(buffer, ())]
    vertices = ({opcode for opcode, _ in work_of(each, library).operations} for each in users)
    return bool(users) and all(DISTRIBUTIONS & each for each in vertices)


def _keys(compute_sets: Sequence[ComputeSet], readers: Readers, makers: Sequence[ComputeSet]) -> frozenset[ComputeSet]:
    """The compute sets whose results nothing but generators reads, directly or through one another."""
    generating, keys = set(makers), set[ComputeSet]()
    for each in reversed(compute_sets):
        written = {span.buffer for span in each.writes}
        users = [user for buffer in written for user in readers.get(buffer, ()) if user is not each]
        private = all(buffer.kind == "arena" and not buffer.is_state for buffer in written)
        if users and private and all(user in keys or user in generating for user in users) and each not in generating:
            keys.add(each)
    return frozenset(keys)
