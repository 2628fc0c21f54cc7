"""Elementwise operations on equally broadcast or reshaped operands are moved before, where there are fewer elements."""

from __future__ import annotations

from engine.ir import Instruction
from engine.ir.affine import squeezed
from engine.ir.opcodes import ELEMENTWISE
from engine.ir.properties import is_elementwise
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed
from engine.passes.splats import splat_value

RULES = RuleSet()


@RULES.on(*sorted(ELEMENTWISE))
def elementwise_of_broadcasts(instruction: Instruction) -> Instruction | None:
    """Computes on the operands of equal broadcasts (and on splats), and broadcasts the result."""
    moved = _moved_operands(instruction, "broadcast")
    if not moved or len({operand["dimensions"] for operand in moved}) > 1:
        return None
    source = moved[0].operands[0].array_shape
    if source.elements >= instruction.array_shape.elements:
        return None
    inner = _computed_before(instruction, source.dimensions)
    return construct.broadcast(instruction, inner, instruction.array_shape.dimensions, moved[0]["dimensions"])


@RULES.on(*sorted(ELEMENTWISE))
def elementwise_of_reshapes(instruction: Instruction) -> Instruction | None:
    """Computes without the unit dimensions that reshapes have added to all operands, and reshapes the result."""
    moved = _moved_operands(instruction, "reshape")
    if not moved:
        return None
    source, result = moved[0].operands[0].array_shape, instruction.array_shape
    if squeezed(source) != squeezed(result):
        return None
    return construct.reshape(instruction, _computed_before(instruction, source.dimensions), result.dimensions)


def _moved_operands(instruction: Instruction, opcode: str) -> list[Instruction]:
    """The operands that are no splats, if all are results of the given opcode from equal dimensions; else none."""
    if not is_elementwise(instruction):
        return []
    moved = [operand for operand in instruction.operands if splat_value(operand) is None]
    if any(operand.opcode != opcode for operand in moved):
        return []
    sources = {operand.operands[0].array_shape.dimensions for operand in moved}
    return moved if len(sources) == 1 else []


def _computed_before(instruction: Instruction, dimensions: tuple[int, ...]) -> Instruction:
    operands = [
        operand.operands[0]
        if (value := splat_value(operand)) is None
        else construct.splat_of(instruction, value, operand.array_shape.with_dimensions(dimensions))
        for operand in instruction.operands
    ]
    return changed(instruction, shape=instruction.array_shape.with_dimensions(dimensions), operands=operands)
