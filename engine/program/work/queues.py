"""Work that takes rows from queues, or appends rows to them: waits for the host, copies, publications."""

from __future__ import annotations

from engine.frozen import frozen
from engine.program.buffer import Address
from engine.program.work.base import Addressed, Work


@frozen
class QueueLeaf(Addressed):
    """A leaf of a queue's rows: its slots in the ring, and an array of that many bytes."""

    ring: Address
    arena: Address
    bytes: int


@frozen
class QueueWork(Work):
    """Work of one worker with a ring. `call` is the call block, by which an ended queue ends the step.

    `ring` is the control block, `slot` where the number of the slot in use is kept for copies by other compute sets.
    """

    call: Address
    ring: Address
    slot: Address | None = None
    leaves: tuple[QueueLeaf, ...] = ()


class InfeedRow(QueueWork):
    """Waits for a row and copies all its leaves."""

    __slots__ = ()


class InfeedWait(QueueWork):
    """Waits for a row, and returns the slots of the row before to the host."""

    __slots__ = ()


class OutfeedRow(QueueWork):
    """Waits for a slot, copies all leaves to it, and publishes the row."""

    __slots__ = ()


class OutfeedWait(QueueWork):
    """Waits for a slot."""

    __slots__ = ()


class OutfeedPublish(QueueWork):
    """Publishes a row that other compute sets have copied."""

    __slots__ = ()


@frozen
class LeafCopyWork(Work):
    """Copies a leaf by all workers. A unit has `unit` bytes."""

    leaf: QueueLeaf
    slot: Address
    unit: int


class InfeedCopy(LeafCopyWork):
    """Copies from the slot."""

    __slots__ = ()


class OutfeedCopy(LeafCopyWork):
    """Copies to the slot."""

    __slots__ = ()
