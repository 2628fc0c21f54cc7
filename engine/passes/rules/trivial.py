"""Instructions that hand on an operand as it is."""

from __future__ import annotations

from engine.ir import Instruction
from engine.passes.rewriting import RuleSet, changed

RULES = RuleSet()


@RULES.on("copy", "optimization-barrier")
def same_value(instruction: Instruction) -> Instruction | None:
    """The operand has the same value."""
    return instruction.operands[0]


@RULES.on("convert", "bitcast-convert")
def same_type(instruction: Instruction) -> Instruction | None:
    """A conversion to the type it has."""
    operand = instruction.operands[0]
    return operand if operand.shape == instruction.shape else None


@RULES.on("bitcast-convert")
def bitcast_of_bitcast(instruction: Instruction) -> Instruction | None:
    """Only where all three element types have one width, so that no dimension comes or goes."""
    operand = instruction.operands[0]
    if operand.opcode != "bitcast-convert":
        return None
    dimensions = {i.array_shape.dimensions for i in (instruction, operand, operand.operands[0])}
    return changed(instruction, operands=operand.operands) if len(dimensions) == 1 else None


@RULES.on("get-tuple-element")
def element_of_tuple(instruction: Instruction) -> Instruction | None:
    """What went into a tuple comes out of it."""
    operand = instruction.operands[0]
    return operand.operands[instruction["tuple_index"]] if operand.opcode == "tuple" else None


@RULES.on("sort")
def sort_of_one(instruction: Instruction) -> Instruction | None:
    """A sort along a dimension of size one, of a single operand."""
    (dimension,) = instruction["dimensions"]
    operand = instruction.operands[0]
    alone = len(instruction.operands) == 1 and instruction.shape == operand.shape
    return operand if alone and operand.array_shape.dimensions[dimension] <= 1 else None
