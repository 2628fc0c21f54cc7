"""Slots of rings accessed in place instead of through a copy.

A ring is an array of a loop's state or input. An iteration uses one slot of it, whose address is known per iteration:
compute sets that read or write a copy of the slot get this address instead.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from engine.frozen import frozen
from engine.program.program import Address, Buffer, ComputeSet, Partition, PerIteration, Program, Slot, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.indexing import SliceWork


def elide_slot_copies(program: Program) -> Program:
    """Replaces copies of slots by the slots themselves in the compute sets that use them."""
    found = [at for at, each in enumerate(program.compute_sets) if _copy_of(each) is not None]
    if not found:
        return program
    rewriter = ProgramRewriter(program)
    for at in found:
        copy = _copy_of(rewriter.sets[at])  # tested again: a copy of a copy may have been given the slot itself
        users = None if copy is None else _users_instead(rewriter, at, copy)
        if copy is not None and users is not None:
            for user in users:
                rewriter.replace(user, _at_slot(rewriter.sets[user], copy))
            rewriter.remove([at])
    return rewriter.result()


@frozen
class _Copy:
    """A compute set that copies a slot of `ring` into `box`, or `box` into it."""

    ring: Address
    box: Buffer
    into_ring: bool


def _copy_of(each: ComputeSet) -> _Copy | None:
    """Returns the copy that a compute set makes of a whole contiguous slot with an address per iteration; else None."""
    slices = each.work
    if not isinstance(slices, SliceWork) or not slices.is_one_run:
        return None
    ring, box = slices.array.address, slices.box.address
    if ring.moved is None or box.offset or box.buffer.kind != "arena" or box.buffer.permanent:
        return None
    if box.buffer.shape.bytes != slices.box.shape.bytes:
        return None
    return _Copy(ring, box.buffer, slices.into_array)


def _users_instead(rewriter: ProgramRewriter, at: int, copy: _Copy) -> list[int] | None:
    """Returns the compute sets that use a slot's copy, if all of them can use the slot itself; else None."""
    box, ring, uses = copy.box, copy.ring.buffer, rewriter.uses
    users = [user for user in uses.users(box) if user != at]
    if not users or uses.escapes(box):
        return None
    first, last = (users[0], max(users[-1], at)) if copy.into_ring else (at, users[-1])
    writers = uses.writers(box)
    if any(first < mark.position <= last for mark in rewriter.program.marks):
        return None
    if copy.into_ring:
        # The slot gets its new value earlier, so no reader may still need its last one.
        if users[0] not in writers or users[0] > at or writers[-1] > at:
            return None
        others = uses.users(ring)
    else:
        # The slot is read later, so it must still have its value.
        if list(writers) != [at] or users[0] < at:
            return None
        others = [*uses.writers(ring)]
    if any(first <= other <= last and other != at for other in others):
        return None
    if any(user in uses.users(ring) for user in users):
        return None
    return users if all(_can_move(rewriter.sets[user], copy) for user in users) else None


def _can_move(compute_set: ComputeSet, copy: _Copy) -> bool:
    """Whether a compute set accesses the box by addresses alone, none of which moves by another counter."""
    found = [a for a in compute_set.work.addresses if a.buffer is copy.box]
    counters = {a.moved.counter for a in (copy.ring, *found) if a.moved is not None}
    return compute_set.overwrites is not copy.box and bool(found) and len(counters) == 1


def _at_slot(compute_set: ComputeSet, copy: _Copy) -> ComputeSet:
    """The compute set with the slot instead of its copy."""
    return replace(
        compute_set,
        work=compute_set.work.with_addresses(partial(_in_slot, copy)),
        reads=[_in_ring(span, copy) for span in compute_set.reads],
        writes=[_in_ring(span, copy) for span in compute_set.writes],
    )


def _sum(one: PerIteration | None, other: PerIteration | None) -> PerIteration | None:
    """The sum of both moves, by one counter."""
    if one is None or other is None:
        return one or other
    return PerIteration(one.counter, tuple(a + b for a, b in zip(one.values, other.values, strict=True)))


def _in_slot(copy: _Copy, address: Address) -> Address:
    if address.buffer is not copy.box:
        return address
    return replace(copy.ring, offset=copy.ring.offset + address.offset, moved=_sum(copy.ring.moved, address.moved))


def _in_ring(span: Span, copy: _Copy) -> Span:
    """The slot's span for a span of its copy: units that take a slice of the copy take the same slice of any slot."""
    if span.buffer is not copy.box:
        return span
    partition: Partition | None = span.partition
    if partition is not None and copy.box.shape.elements % (partition.inner * partition.extent):
        partition = None
    assert copy.ring.moved is not None
    return Span(copy.ring.buffer, partition, Slot(copy.ring.moved, copy.box.shape.bytes))
