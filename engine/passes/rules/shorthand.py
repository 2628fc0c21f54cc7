"""Operations on known sizes, tokens, and `map`, whose body becomes operations on whole arrays."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction, Shape
from engine.ir.opcodes import ELEMENTWISE
from engine.passes import construct
from engine.passes.rewriting import RuleSet, changed, make
from engine.passes.splats import is_splat_of

RULES = RuleSet()


@RULES.on("get-dimension-size")
def size_of_a_dimension(instruction: Instruction) -> Instruction:
    """A size is a constant, since shapes are static."""
    (dimension,) = instruction["dimensions"]
    size = instruction.operands[0].array_shape.dimensions[dimension]
    return construct.constant(instruction, np.array(size, np.int32), instruction.array_shape)


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
    if any(i.opcode not in ELEMENTWISE | {"parameter", "constant"} for i in body.instructions):
        return None
    dimensions = instruction.array_shape.dimensions
    whole: dict[Instruction, Instruction] = {}
    for inner in body.instructions:
        shape = Shape(inner.array_shape.element_type, dimensions)
        if inner.opcode == "parameter":
            whole[inner] = instruction.operands[inner["parameter_number"]]
        elif inner.opcode == "constant":
            whole[inner] = construct.splat_of(instruction, inner["literal"], shape)
        else:
            whole[inner] = changed(inner, shape=shape, operands=[whole[operand] for operand in inner.operands])
    return whole[body.root]


@RULES.on("after-all")
def order_of_nothing(instruction: Instruction) -> Instruction:
    """A token carries no value, and the operations it orders run in order anyway."""
    return make(instruction, "tuple", instruction.shape, ())
