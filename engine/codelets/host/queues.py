"""Queues between host and device: rings of slots, with a wait for the other side.

A ring's control block has one word in each CONTROL_LINE; the slots of each leaf are contiguous. A slot of an infeed
holds a row, or a `RowSlot` that points into the host's arrays. Only one worker waits, takes and publishes. It reads the
state of the running call from a *call block* of addresses, which the host writes before each call.

A worker whose wait ends without a row, because the ring is closed or the call ends inside its step, asks all workers to
leave the step; they do at the jump that follows, with a barrier between.
"""

from __future__ import annotations

from enum import IntEnum

from engine.codelets.host.rows import copy_bytes
from engine.codelets.language.build import Codelet, codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import call_address, load_acquire, pause, store_i64, store_release
from engine.codelets.language.record import Address, Record, block, word
from engine.program.control_words import CONTROL_LINE, CallBlock, Ring
from engine.program.work.queues import (
    InfeedCopy,
    InfeedRow,
    InfeedWait,
    LeafCopyWork,
    OutfeedCopy,
    OutfeedPublish,
    OutfeedRow,
    OutfeedWait,
    QueueWork,
)

NAP_MICROSECONDS = 50  # of a worker between two reads of a ring
LEAVE_INSIDE_STEP = 2


class RowSlot(IntEnum):
    """Words of a slot whose row is read in place, part by part."""

    PARTS = 0  # address of the parts' addresses
    BYTES = 1  # of each part
    WORDS = 2


class Queue(Record):
    """Parameters of the one-worker codelets, before a Leaf for each leaf."""

    call: Address = 0  # the call block
    ring: Address = 0  # the control block
    slot: Address = 0  # the number of the slot in use
    count: int  # leaves that are copied together


class Leaf(Record):
    """The memory of a leaf."""

    ring: Address = 0  # the slots
    arena: Address = 0
    bytes: int


class LeafCopy(Leaf):
    """Parameters of `infeed_copy` and `outfeed_copy`."""

    slot: Address = 0  # the number of the slot in use, or -1 minus the number of a RowSlot
    unit: int  # bytes of a unit


@inner
def _control(ring: int, index: int) -> int:
    return ring + 8 * CONTROL_LINE * index


@inner
def leave_step_of(call: int, worker: int) -> None:
    """Makes all workers leave the step at the next jump that allows it, once this one has passed one more barrier."""
    store_release(word(call, CallBlock.STOP), LEAVE_INSIDE_STEP)
    if load_acquire(word(call, CallBlock.LEAVE_AT)) == 0:
        store_release(
            word(call, CallBlock.LEAVE_AT), word(word(call, CallBlock.PASSED) + 8 * CONTROL_LINE * worker, 0) + 1
        )


@inner
def leave_step(call: int) -> None:
    """Leaves the step on behalf of worker 0."""
    leave_step_of(call, 0)


@inner
def _wait(call: int, ring: int, index: int, least: int) -> bool:
    """Waits until a word of the ring is at least `least`; False if the step is left instead."""
    if load_acquire(_control(ring, index)) >= least:
        return True
    waits = _control(ring, Ring.WAITS)
    store_release(waits, word(waits, 0) + 1)
    iterations = 0
    while load_acquire(_control(ring, index)) < least:
        if load_acquire(_control(ring, Ring.CLOSED)) != 0:
            if load_acquire(_control(ring, index)) >= least:
                return True
            store_release(_control(ring, Ring.ENDED), 1)
            leave_step(call)
            return False
        if (
            load_acquire(word(call, CallBlock.STOP)) == LEAVE_INSIDE_STEP
            or load_acquire(word(call, CallBlock.ABORT)) != 0
        ):
            leave_step(call)
            return False
        iterations += 1
        if iterations < word(call, CallBlock.PAUSES):
            pause()
        else:
            call_address(word(call, CallBlock.NAP), NAP_MICROSECONDS)
    return True


@inner
def _next_row(parameters: int) -> int:
    """Releases the last row's slot and waits for the next row; returns the number of its slot, -1 if there is none."""
    ring = word(parameters, Queue.RING)
    taken = word(_control(ring, Ring.TAKEN), 0)
    store_release(_control(ring, Ring.READ), taken)
    if not _wait(word(parameters, Queue.CALL), ring, Ring.WRITTEN, taken + 1):
        return -1
    store_release(_control(ring, Ring.TAKEN), taken + 1)
    return taken % word(_control(ring, Ring.SLOTS), 0)


@inner
def _as_read(parameters: int, slot: int) -> int:
    """The number of a slot in the encoding of LeafCopy.SLOT."""
    return -1 - slot if word(_control(word(parameters, Queue.RING), Ring.SLOTS), 1) != 0 else slot


@inner
def _copy_row(leaf: int, slot: int, start: int, end: int) -> None:
    """Copies the bytes start <= i < end of a leaf's row to the arena; `slot` is encoded as in LeafCopy.SLOT."""
    ring, arena = word(leaf, Leaf.RING), word(leaf, Leaf.ARENA)
    if slot >= 0:
        copy_bytes(arena + start, ring + slot * word(leaf, Leaf.BYTES) + start, end - start)
        return
    row = ring - 8 * RowSlot.WORDS * (slot + 1)
    parts, size = word(row, RowSlot.PARTS), word(row, RowSlot.BYTES)
    while start < end:
        offset = start % size
        count = min(size - offset, end - start)
        copy_bytes(arena + start, word(parts, start // size) + offset, count)
        start += count


@inner
def _free_slot(parameters: int) -> int:
    """Waits for space; returns the number of a free slot, -1 if the step is left."""
    ring = word(parameters, Queue.RING)
    slots, written = word(_control(ring, Ring.SLOTS), 0), word(_control(ring, Ring.WRITTEN), 0)
    if load_acquire(_control(ring, Ring.CLOSED)) != 0:
        store_release(_control(ring, Ring.ENDED), 1)
        leave_step(word(parameters, Queue.CALL))
        return -1
    if not _wait(word(parameters, Queue.CALL), ring, Ring.READ, written - slots + 1):
        return -1
    return written % slots


@inner
def _publish(parameters: int) -> None:
    written = _control(word(parameters, Queue.RING), Ring.WRITTEN)
    store_release(written, word(written, 0) + 1)


@codelet
def infeed_wait(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Takes the next row; stores the number of its slot in SLOT, encoded as in LeafCopy."""
    slot = _next_row(parameters)
    if slot >= 0:
        store_i64(word(parameters, Queue.SLOT), _as_read(parameters, slot))


@codelet
def infeed_row(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Takes the next row and copies all its leaves to the arena."""
    slot = _next_row(parameters)
    if slot < 0:
        return
    slot = _as_read(parameters, slot)
    for k in range(word(parameters, Queue.COUNT)):
        leaf = parameters + 8 * (Queue.WORDS + k * Leaf.WORDS)
        _copy_row(leaf, slot, 0, word(leaf, Leaf.BYTES))


@codelet
def infeed_copy(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Copies the units lo <= i < hi of a leaf from the slot in use to the arena."""
    unit, size = word(parameters, LeafCopy.UNIT), word(parameters, Leaf.BYTES)
    _copy_row(parameters, word(word(parameters, LeafCopy.SLOT), 0), lo * unit, min(hi * unit, size))


@codelet
def outfeed_wait(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Waits for space; stores the number of a free slot in SLOT."""
    slot = _free_slot(parameters)
    if slot >= 0:
        store_i64(word(parameters, Queue.SLOT), slot)


@codelet
def outfeed_row(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Waits for space, copies all leaves of a row from the arena and publishes the row."""
    slot = _free_slot(parameters)
    if slot < 0:
        return
    for k in range(word(parameters, Queue.COUNT)):
        leaf = parameters + 8 * (Queue.WORDS + k * Leaf.WORDS)
        size = word(leaf, Leaf.BYTES)
        copy_bytes(word(leaf, Leaf.RING) + slot * size, word(leaf, Leaf.ARENA), size)
    _publish(parameters)


@codelet
def outfeed_copy(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Copies the units lo <= i < hi of a leaf from the arena to the slot in use."""
    size = word(parameters, Leaf.BYTES)
    target = word(parameters, Leaf.RING) + word(word(parameters, LeafCopy.SLOT), 0) * size
    start, end = lo * word(parameters, LeafCopy.UNIT), min(hi * word(parameters, LeafCopy.UNIT), size)
    copy_bytes(target + start, word(parameters, Leaf.ARENA) + start, end - start)


@codelet
def outfeed_publish(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Publishes the row, once all its leaves are copied."""
    _publish(parameters)


@codelet
def store_word(address: int, value: int, _: int, __: int) -> None:
    """Stores an int64 with release ordering, for the host."""
    store_release(address, value)


@codelet
def load_word(address: int, target: int, _: int, __: int) -> None:
    """Loads an int64 with acquire ordering into another word, for the host."""
    store_i64(target, load_acquire(address))


CODELETS: dict[type[QueueWork], Codelet] = {
    InfeedRow: infeed_row,
    InfeedWait: infeed_wait,
    OutfeedRow: outfeed_row,
    OutfeedWait: outfeed_wait,
    OutfeedPublish: outfeed_publish,
}
COPIES: dict[type[LeafCopyWork], Codelet] = {InfeedCopy: infeed_copy, OutfeedCopy: outfeed_copy}


def encoded_queue(work: QueueWork) -> Encoded:
    """The header, then the leaves."""
    head = Queue.of(work, count=len(work.leaves))
    return Encoded.of(CODELETS[type(work)], block(head, [Leaf.of(each) for each in work.leaves]))


def encoded_leaf_copy(work: LeafCopyWork) -> Encoded:
    """The fields of `LeafCopy`."""
    parameters = LeafCopy.of(work.leaf, slot=work.slot, unit=work.unit)
    return Encoded.of(COPIES[type(work)], block(parameters))
