"""Bodies of scatters: opcodes that combine elements, or nodes."""

from __future__ import annotations

from engine.errors import UnsupportedOperation
from engine.ir import Computation, Instruction
from engine.ops.apply import single_operation
from engine.passes.fusible import is_scalar_body
from engine.program.nest import Combiner
from engine.program.nests import body_of


def combiner_for(instruction: Instruction, body: Computation, element_types: tuple[str, ...]) -> Combiner:
    """The body that combines updates with elements of these types.

    Raises UnsupportedOperation for a body that does more than compute on scalars.
    """
    if not is_scalar_body(body):
        raise UnsupportedOperation(
            f"Expected a body that computes on scalars, elementwise. Received: %{body.name} of {instruction!r} "
            f"from {instruction.op_name or 'the program'}. Compute the updates beforehand, and combine them by add, "
            "maximum or the like."
        )
    return Combiner(body_of(body), element_types, combining(body) if len(element_types) == 1 else None)


def combining(body: Computation) -> str | None:
    """The name that codelets of scatters have for a body of one operation, or one choice by comparison; else None."""
    root = body.root
    if root.opcode == "select" and root.operands[0].opcode == "compare":
        compare = root.operands[0]
        direction, chosen = compare["direction"], [*compare.operands, *root.operands[1:]]
        numbers = [each.get("parameter_number") for each in chosen]
        is_total = compare.get("comparison_type") == "TOTALORDER"
        return str(direction) if direction in ("GT", "LT") and numbers == [0, 1, 0, 1] and not is_total else None
    return single_operation(body)
