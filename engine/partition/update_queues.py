"""Outfeeds of an update, which runs once for all replicas: each replica enqueues, as on a chip."""

from __future__ import annotations

from collections.abc import Iterable

from engine.ir import Instruction, Shape
from engine.ir.builder import Builder
from engine.ir.device_operations import OUTFEED, target_of
from engine.partition.instruction_copies import Copies
from engine.partition.taken_branches import up_to
from engine.passes.rewriting import changed


def enqueue_for_replicas(builder: Builder, copies: Copies, updates: Iterable[Instruction], replicas: int) -> None:
    """Adds each outfeed that updates depend on once for each replica, to a computation being built.

    `copies` already has the results of the gradient part, on which the update part depends.
    """
    if replicas == 1:
        return
    for outfeed in up_to(updates, copies.known()):
        if target_of(outfeed) != OUTFEED or outfeed in copies.known():
            continue
        *leaves, token = [copies.of(operand) for operand in outfeed.operands]
        for _ in range(replicas):
            call = changed(outfeed, operands=[*leaves, token])
            builder.instructions.append(call)
            token = call if isinstance(call.shape, Shape) else builder.get_tuple_element(call, 0)
        copies.stand_for(outfeed, call)
