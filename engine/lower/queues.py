"""Lowers infeeds and outfeeds: a wait for the host, and copies between the ring and the arena.

A small row takes one compute set on one worker. All workers copy each leaf of a large row, between the wait and, for an
outfeed, the publication. The step can end after each wait, so that no instruction reads a row that is missing. The
token only orders the instructions, which are lowered in its order.
"""

from __future__ import annotations

from engine.errors import ConfigurationError
from engine.ir import Instruction, Shape
from engine.ir.device_operations import QUEUES, QueueSignature, queue_of, queue_signature
from engine.lower.context import Context, Value, custom_call
from engine.program.control_words import CONTROL_LINE, Ring
from engine.program.program import Address, Buffer, Partition, ProgramQueue, Span, WorkEstimate
from engine.program.work.queues import (
    InfeedCopy,
    InfeedRow,
    InfeedWait,
    OutfeedCopy,
    OutfeedPublish,
    OutfeedRow,
    OutfeedWait,
    QueueLeaf,
    QueueWork,
)

SMALL_ROW = 16384
"""Bytes of a row up to which one worker copies faster than several synchronise."""
UNIT_BYTES = 16384
"""Bytes of a unit, for a leaf without rows of its own."""

Placed = list[tuple[Buffer, Buffer]]
"""Leaves that have any bytes: their slots, and the arrays in the arena."""


@custom_call(*QUEUES)
def lower_queue(context: Context, instruction: Instruction) -> Value:
    """The leaves of an infeed and the token, or the token of an outfeed: the operand's, as its value has no readers.

    Raises ConfigurationError for a queue used with different leaves.
    """
    queue, token = _queue(context, instruction), context.buffer(instruction.operands[-1])
    is_infeed = queue.signature.direction == "infeed"
    if is_infeed:
        arrays = [context.result_buffer(instruction, k) for k in range(len(queue.leaves))]
    else:
        arrays = [context.buffer(operand) for operand in instruction.operands[:-1]]
    placed = [(slots, array) for slots, array in zip(queue.leaves, arrays, strict=True) if slots.shape.bytes]
    _move(context, instruction, queue, placed)
    if is_infeed:
        return (*arrays, token)
    return token if isinstance(instruction.shape, Shape) else (token,)


def _queue(context: Context, instruction: Instruction) -> ProgramQueue:
    """The program's queue of that name. Raises ConfigurationError if it is used with other leaves elsewhere."""
    name, signature = queue_of(instruction), queue_signature(instruction)
    if name not in context.queues:
        control = Buffer(f"{name} control", Shape("s64", (CONTROL_LINE * Ring.WORDS,)), "queue")
        leaves = tuple(Buffer(f"{name} leaf {k}", shape, "queue") for k, shape in enumerate(signature.shapes))
        context.queues[name] = ProgramQueue(signature, control, leaves)
    known = context.queues[name].signature
    if known != signature:
        raise ConfigurationError(
            f"Expected each use of queue {name!r} to be {_described(known)}. "
            f"Received: {_described(signature)}. Make another queue for other elements."
        )
    return context.queues[name]


def _described(signature: QueueSignature) -> str:
    return f"an {signature.direction} of ({', '.join(map(str, signature.shapes))})"


def _move(context: Context, instruction: Instruction, queue: ProgramQueue, placed: Placed) -> None:
    """Moves a row between the slots of a ring and arrays: a small one by one worker, which also waits for it."""
    direction = queue.signature.direction
    is_infeed = direction == "infeed"
    slots, arrays = [Span(s) for s, _ in placed], [Span(a) for _, a in placed]
    leaves = tuple(QueueLeaf(Address(ring), Address(array), ring.shape.bytes) for ring, array in placed)

    def emit(name: str, work: QueueWork, reads: list[Span], writes: list[Span]) -> None:
        """Emits work of one worker: a wait, a publication, or copies of leaves."""
        control, suffix = Span(queue.control), f".{name}"
        estimate = WorkEstimate({"copy": sum(leaf.ring.buffer.shape.elements for leaf in work.leaves)})
        spans = [control, *reads], [control, *writes]
        context.emit_for(instruction, work, 1, *spans, estimate, suffix=suffix, one_worker=True)

    blocks = Address(context.call_block()), Address(queue.control)
    if sum(leaf.bytes for leaf in leaves) <= SMALL_ROW:
        if is_infeed:
            emit(direction, InfeedRow(*blocks, leaves=leaves), slots, [*slots, *arrays])
        else:
            emit(direction, OutfeedRow(*blocks, leaves=leaves), arrays, slots)
        context.mark("leave", 0)
        return
    slot = Buffer(f"{instruction.name}.slot", Shape("s64"))
    # The wait returns the slots of the row before to the host: no worker may still copy from them.
    wait, copy = (InfeedWait, InfeedCopy) if is_infeed else (OutfeedWait, OutfeedCopy)
    emit(f"{direction}.wait", wait(*blocks, Address(slot)), [], [*slots, Span(slot)])
    context.mark("leave", 0)
    for leaf, (ring, array) in zip(leaves, placed, strict=True):
        units, unit_bytes, partition = _units(array.shape)
        source, target = (ring, array) if is_infeed else (array, ring)
        reads, writes = [Span(source, partition), Span(slot)], [Span(target, partition)]
        work, estimate = copy(leaf, Address(slot), unit_bytes), WorkEstimate({"copy": ring.shape.elements})
        context.emit_for(instruction, work, units, reads, writes, estimate, suffix=f".{ring.name}")
    if not is_infeed:
        emit("outfeed.publish", OutfeedPublish(*blocks), slots, [])


def _units(shape: Shape) -> tuple[int, int, Partition]:
    """Number of units that copy an array, the bytes of each, and their partition: rows where there are any."""
    if shape.bytes <= SMALL_ROW:
        return 1, shape.bytes, Partition(1, shape.elements, shape.elements)
    if shape.rank and shape.dimensions[0] > 1:
        rows = shape.dimensions[0]
        return rows, shape.bytes // rows, Partition(shape.elements // rows, rows, 1)
    item = shape.dtype.itemsize
    return -(-shape.bytes // UNIT_BYTES), UNIT_BYTES, Partition(1, shape.elements, UNIT_BYTES // item)
