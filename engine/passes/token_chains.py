"""Checks that the queue operations of loops and branches are in the chain of tokens their computations return."""

from __future__ import annotations

from engine.errors import InternalError
from engine.ir import Module, topological
from engine.ir.device_operations import is_queue, queue_of
from engine.ir.properties import has_side_effect


def check_token_chains(module: Module) -> Module:
    """The module unchanged. Passes rebuild bodies from their roots, which would drop instructions no root needs.

    Raises InternalError for an infeed or an outfeed, or a caller of one, whose token does not reach the root of a
    called computation.
    """
    for computation in module.computations():
        if computation is module.entry or not any(has_side_effect(i) for i in computation.instructions):
            continue
        reached = set(topological([computation.root]))
        for instruction in computation.instructions:
            if instruction not in reached and has_side_effect(instruction):
                what = f"{queue_of(instruction)!r}" if is_queue(instruction) else instruction.opcode
                raise InternalError(
                    f"Expected the token of {what} to be among the results of {computation.name}. "
                    f"Received: %{instruction.name}, whose token is dropped. Assign it to the token's variable."
                )
    return module
