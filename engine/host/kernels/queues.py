"""Codelets and parameter blocks of work with queues."""

from __future__ import annotations

from engine.codelets.host.queues import (
    Leaf,
    LeafCopy,
    Queue,
    infeed_copy,
    infeed_row,
    infeed_wait,
    outfeed_copy,
    outfeed_publish,
    outfeed_row,
    outfeed_wait,
)
from engine.codelets.language.build import Codelet
from engine.codelets.language.record import block
from engine.host.encoded import Encoded
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
    head = Queue(call=work.call, ring=work.ring, slot=work.slot or 0, count=len(work.leaves))
    leaves = [Leaf(ring=each.ring, arena=each.arena, bytes=each.bytes) for each in work.leaves]
    return Encoded.of(CODELETS[type(work)], block(head, leaves))


def encoded_leaf_copy(work: LeafCopyWork) -> Encoded:
    """The fields of `LeafCopy`."""
    leaf = work.leaf
    parameters = LeafCopy(ring=leaf.ring, arena=leaf.arena, bytes=leaf.bytes, slot=work.slot, unit=work.unit)
    return Encoded.of(COPIES[type(work)], block(parameters))
