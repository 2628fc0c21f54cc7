"""Operations on known sizes, tokens, and `map`, whose body becomes operations on whole arrays."""

from __future__ import annotations

from engine.ir import Instruction
from engine.passes import construct
from engine.passes.rewriting import RuleSet, make
from engine.passes.splats import is_splat_of

RULES = RuleSet()


@RULES.on("get-dimension-size")
def size_of_a_dimension(instruction: Instruction) -> Instruction:
    """A size is a constant, since shapes are static."""
    (dimension,) = instruction["dimensions"]
    size = instruction.operands[0].array_shape.dimensions[dimension]
    return construct.constant(instruction, size, instruction.array_shape)


@RULES.on("set-dimension-size")
def size_that_it_has_already(instruction: Instruction) -> Instruction | None:
    """Removes a size equal to the operand's dimension. A smaller size remains, and causes an error later."""
    operand, size = instruction.operands
    (dimension,) = instruction["dimensions"]
    return operand if is_splat_of(size, operand.array_shape.dimensions[dimension]) else None


@RULES.on("map")
def map_of_whole_arrays(instruction: Instruction) -> Instruction | None:
    """The body's operations, each on all elements. A body with a loop, say, remains, and causes an error later."""
    (body,) = instruction.called
    return construct.on_arrays(instruction, body, instruction.operands, instruction.array_shape.dimensions)


@RULES.on("after-all")
def order_of_nothing(instruction: Instruction) -> Instruction:
    """A token carries no value, and the operations it orders run in order anyway."""
    return make(instruction, "tuple", instruction.shape, ())
