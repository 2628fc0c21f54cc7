"""Instructions that return an operand unchanged."""

from __future__ import annotations

from engine.ir import Instruction
from engine.passes.rewriting import RuleSet, changed

RULES = RuleSet()


@RULES.on("copy", "optimization-barrier")
def same_value(instruction: Instruction) -> Instruction | None:
    """A copy or barrier has its operand's value."""
    return instruction.operands[0]


@RULES.on("bitcast-convert", "convert", "reshape", "slice")
def same_shape(instruction: Instruction) -> Instruction | None:
    """A conversion to the operand's type, a reshape to its dimensions, and a slice of the whole operand."""
    operand = instruction.operands[0]
    return operand if operand.shape == instruction.shape else None


@RULES.on("bitcast-convert", of="bitcast-convert")
def bitcast_of_bitcast(instruction: Instruction) -> Instruction | None:
    """Merges two bitcasts if all three element types have the same width, so that no dimension is added or removed."""
    operand = instruction.operands[0]
    dimensions = {i.array_shape.dimensions for i in (instruction, operand, operand.operands[0])}
    return changed(instruction, operands=operand.operands) if len(dimensions) == 1 else None


@RULES.on("get-tuple-element", of="tuple")
def element_of_tuple(instruction: Instruction) -> Instruction | None:
    """The element of a `tuple` instruction is its operand."""
    return instruction.operands[0].operands[instruction["tuple_index"]]


@RULES.on("sort")
def sort_of_one(instruction: Instruction) -> Instruction | None:
    """A sort along a dimension of at most one element, of a single operand."""
    (dimension,) = instruction["dimensions"]
    operand = instruction.operands[0]
    alone = len(instruction.operands) == 1 and instruction.shape == operand.shape
    return operand if alone and operand.array_shape.dimensions[dimension] <= 1 else None
