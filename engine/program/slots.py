"""Slots of rings read and written where they lie, instead of in a copy that is taken out or put in.

A ring is an array of a loop's state, or what the loop takes its data from, of which each turn has to do with one slot
whose place is known by turn. Whoever reads or writes a copy of the slot is given the slot's address by turn in its
place. It is a matter of the host: the program that the device model accounts for copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

from engine.codelets.dynamic_slice import DynamicSlice, dynamic_slice
from engine.program.program import Address, Buffer, ByTurn, ComputeSet, Partition, Program, Slot, Span
from engine.program.removal import without
from engine.program.work.words import Words


def slots_in_place(program: Program) -> Program:
    """The program as it is run on the host; the given one is left as it is."""
    places = [at for at in range(len(program.compute_sets)) if _copy_at(program, at) is not None]
    if not places:
        return program
    running = replace(program, compute_sets=list(program.compute_sets))
    uses = _Uses(running)
    removed = []
    for at in places:
        copy = _copy_at(running, at)  # asked again: a copy of a copy may have been given the slot itself
        users = None if copy is None else uses.instead_of(copy)
        if copy is not None and users is not None:
            uses.move(copy, users)
            removed.append(copy.at)
    return without(running, removed)


@dataclass(frozen=True, slots=True)
class _Copy:
    """Compute set `at` copies a slot of `ring` into `box`, or `box` into it."""

    at: int
    ring: Address
    box: Buffer
    into_ring: bool


def _copy_at(program: Program, at: int) -> _Copy | None:
    """The copy of a whole slot in one piece that a compute set makes, if its place is known by turn alone."""
    each = program.compute_sets[at]
    if not isinstance(each.work, Words) or each.work.codelet is not dynamic_slice:
        return None
    parameters = each.work.words
    if parameters[DynamicSlice.START_RANK] or parameters[DynamicSlice.PIECE_RANK]:
        return None
    places = {r.word: r.address for r in each.work.relocations}
    ring, box = places[int(DynamicSlice.ARRAY)], places[int(DynamicSlice.BOX)]
    if ring.moved is None or box.offset or box.buffer.kind != "arena" or box.buffer.permanent:
        return None
    if box.buffer.shape.bytes != parameters[DynamicSlice.PIECE_BYTES]:
        return None
    return _Copy(at, ring, box.buffer, bool(parameters[DynamicSlice.INTO_ARRAY]))


class _Uses:
    """Which compute sets read and write each buffer, kept up to date."""

    def __init__(self, program: Program) -> None:
        self.program, self.sets = program, program.compute_sets
        self.faces = Counter(program.outputs)
        self.faces.update(m.predicate for m in program.marks if m.predicate is not None)
        self.reads: dict[Buffer, set[int]] = {}
        self.writes: dict[Buffer, set[int]] = {}
        for at, each in enumerate(self.sets):
            self._note(at, each)
        self.steered = {mark.position for mark in program.marks}

    def _note(self, at: int, compute_set: ComputeSet) -> None:
        for places, spans in ((self.reads, compute_set.reads), (self.writes, compute_set.writes)):
            for span in spans:
                places.setdefault(span.buffer, set()).add(at)

    def instead_of(self, copy: _Copy) -> list[int] | None:
        """The compute sets that can use the slot itself, which are all that use its copy; None if they cannot."""
        box, ring = copy.box, copy.ring.buffer
        users = sorted((self.reads.get(box, set()) | self.writes.get(box, set())) - {copy.at})
        if not users or self.faces[box]:
            return None
        first, last = (users[0], max(users[-1], copy.at)) if copy.into_ring else (copy.at, users[-1])
        writers = self.writes.get(box, set())
        if any(first < position <= last for position in self.steered):
            return None
        if copy.into_ring:
            # The slot has its new value sooner, and its last one must not be missed.
            if users[0] not in writers or users[0] > copy.at or any(at > copy.at for at in writers):
                return None
            between = self._between(self.reads, ring, first, last) | self._between(self.writes, ring, first, last)
        else:
            # What is read is read later, and must still be there.
            if writers != {copy.at} or users[0] < copy.at:
                return None
            between = self._between(self.writes, ring, first, last)
        if between - {copy.at} or any(ring in _buffers(self.sets[at]) for at in users):
            return None
        return users if all(self._can_move(self.sets[at], copy) for at in users) else None

    @staticmethod
    def _between(places: dict[Buffer, set[int]], buffer: Buffer, first: int, last: int) -> set[int]:
        return {at for at in places.get(buffer, set()) if first <= at <= last}

    @staticmethod
    def _can_move(compute_set: ComputeSet, copy: _Copy) -> bool:
        """Whether a compute set finds the box by addresses alone, none of which moves by another count."""
        found = [a for a in compute_set.work.addresses if a.buffer is copy.box]
        counters = {a.moved.counter for a in (copy.ring, *found) if a.moved is not None}
        return compute_set.overwrites is not copy.box and bool(found) and len(counters) == 1

    def move(self, copy: _Copy, users: list[int]) -> None:
        """Gives users of the copy the slot itself."""
        for at in users:
            each = self.sets[at]
            self.sets[at] = replace(
                each,
                work=each.work.with_addresses(partial(_in_slot, copy)),
                reads=[_in_ring(span, copy) for span in each.reads],
                writes=[_in_ring(span, copy) for span in each.writes],
            )
            self._note(at, self.sets[at])
        for places in (self.reads, self.writes):
            places.pop(copy.box, None)
            places.get(copy.ring.buffer, set()).discard(copy.at)


def _sum(one: ByTurn | None, other: ByTurn | None) -> ByTurn | None:
    """Both moves by one count."""
    if one is None or other is None:
        return one or other
    return ByTurn(one.counter, tuple(a + b for a, b in zip(one.values, other.values, strict=True)))


def _buffers(compute_set: ComputeSet) -> set[Buffer]:
    return {span.buffer for span in (*compute_set.reads, *compute_set.writes)}


def _in_slot(copy: _Copy, address: Address) -> Address:
    if address.buffer is not copy.box:
        return address
    return replace(copy.ring, offset=copy.ring.offset + address.offset, moved=_sum(copy.ring.moved, address.moved))


def _in_ring(span: Span, copy: _Copy) -> Span:
    """The same part of any slot: pieces that are dealt out alike in each slot stay pieces."""
    if span.buffer is not copy.box:
        return span
    partition: Partition | None = span.partition
    if partition is not None and copy.box.shape.elements % (partition.inner * partition.extent):
        partition = None
    assert copy.ring.moved is not None
    return Span(copy.ring.buffer, partition, Slot(copy.ring.moved, copy.box.shape.bytes))
