"""Rules for transposes: of unit dimensions, of transposes, and of operands that are cheap to compute transposed."""

from __future__ import annotations

from engine.ir import Instruction
from engine.passes import construct
from engine.passes.rewriting import RuleSet, make

RULES = RuleSet()


@RULES.on("transpose")
def moves_only_unit_dimensions(instruction: Instruction) -> Instruction | None:
    """A transpose that keeps the order of elements is a reshape, or the operand where no dimension moves."""
    operand = instruction.operands[0]
    old = operand.array_shape.dimensions
    order = [d for d in instruction["dimensions"] if old[d] != 1]
    if order != sorted(order) and 0 not in old:
        return None
    return construct.reshape(instruction, operand, instruction.array_shape.dimensions)


@RULES.on("transpose", of="transpose")
def transpose_of_transpose(instruction: Instruction) -> Instruction | None:
    """A transpose of a transpose is one transpose."""
    operand = instruction.operands[0]
    inner = operand["dimensions"]
    return construct.transpose(instruction, operand.operands[0], [inner[d] for d in instruction["dimensions"]])


@RULES.on("transpose", of="broadcast")
def transpose_of_broadcast(instruction: Instruction) -> Instruction | None:
    """Broadcasts to the permuted dimensions at once."""
    operand = instruction.operands[0]
    position = {old: new for new, old in enumerate(instruction["dimensions"])}
    mapping = [position[d] for d in operand["dimensions"]]
    return construct.broadcast(instruction, operand.operands[0], instruction.array_shape.dimensions, mapping)


@RULES.on("transpose", of="iota")
def transpose_of_iota(instruction: Instruction) -> Instruction | None:
    """Counts along the permuted dimension at once."""
    operand = instruction.operands[0]
    dimension = instruction["dimensions"].index(operand["iota_dimension"])
    return make(instruction, "iota", instruction.shape, (), iota_dimension=dimension)
