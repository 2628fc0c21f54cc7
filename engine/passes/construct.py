"""Builds the few instructions that rules use, in place of another one (`like`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from engine.ir import Computation, GatherDimensionNumbers, Instruction, Shape, SliceDimension, TupleShape
from engine.ir.opcodes import ELEMENTWISE, inferred_shape
from engine.passes.rewriting import changed, make


def shaped(made: Instruction) -> Instruction:
    """A new instruction, with the shape that follows from its operands and attributes."""
    made.shape = inferred_shape(made)
    return made


def inferred(
    like: Instruction, opcode: str, *operands: Instruction, hint: Shape | None = None, **attributes: Any
) -> Instruction:
    """An operation whose shape follows from its operands, its attributes and, where free, the type of `hint`."""
    return shaped(make(like, opcode, hint or operands[0].shape, operands, **attributes))


def constant(like: Instruction, literal: ArrayLike, shape: Shape) -> Instruction:
    """A constant of the literal's value in the shape's dtype; the literal must have the shape's dimensions."""
    return make(like, "constant", shape, (), literal=np.asarray(literal, shape.dtype))


def splat_of(like: Instruction, value: ArrayLike, shape: Shape) -> Instruction:
    """A constant of any shape all of whose elements have one value, a number or an array of rank 0."""
    if shape.elements == 1:
        return constant(like, np.asarray(value, shape.dtype).reshape(shape.dimensions), shape)
    return broadcast(like, constant(like, value, shape.with_dimensions(())), shape.dimensions, ())


def reshape(like: Instruction, operand: Instruction, dimensions: Sequence[int]) -> Instruction:
    """The operand with these dimensions; the operand itself if it has them already."""
    shape = operand.array_shape.with_dimensions(tuple(dimensions))
    return operand if shape == operand.shape else make(like, "reshape", shape, (operand,))


def transpose(like: Instruction, operand: Instruction, permutation: Sequence[int]) -> Instruction:
    """The transposed operand; the operand itself if the permutation is the identity."""
    permutation = tuple(permutation)
    if permutation == tuple(range(len(permutation))):
        return operand
    return inferred(like, "transpose", operand, dimensions=permutation)


def broadcast(
    like: Instruction, operand: Instruction, dimensions: Sequence[int], mapping: Sequence[int]
) -> Instruction:
    """The broadcast operand; `mapping[i]` is the dimension of the result that the operand's dimension i becomes."""
    shape = operand.array_shape.with_dimensions(tuple(dimensions))
    return make(like, "broadcast", shape, (operand,), dimensions=tuple(mapping))


def convert(like: Instruction, operand: Instruction, element_type: str) -> Instruction:
    """The operand in this type; the operand itself if it has it already."""
    shape = operand.array_shape.with_type(element_type)
    return operand if shape == operand.shape else make(like, "convert", shape, (operand,))


def slice_of(like: Instruction, operand: Instruction, slices: Sequence[SliceDimension]) -> Instruction:
    """The sliced operand; the operand itself if the slice is the whole of it."""
    sliced = inferred(like, "slice", operand, slice_dimensions=tuple(slices))
    # A slice that keeps every size keeps every element: strides are positive and limits are in bounds.
    return operand if sliced.shape == operand.shape else sliced


def take(like: Instruction, table: Instruction, positions: Instruction) -> Instruction:
    """The elements of a vector, or the rows of a matrix, at positions in its bounds, [n] or [n, 1]."""
    width = table.array_shape.dimensions[1:]
    numbers = GatherDimensionNumbers(tuple(range(1, 1 + len(width))), (0,), (0,), 1)
    sizes = (1, *width)
    return inferred(like, "gather", table, positions, gather_dimension_numbers=numbers, gather_slice_sizes=sizes)


def elementwise(like: Instruction, opcode: str, *operands: Instruction) -> Instruction:
    """An operation whose result has its first operand's shape."""
    return make(like, opcode, operands[0].shape, operands)


def on_arrays(
    like: Instruction, body: Computation, operands: Sequence[Instruction], dimensions: Sequence[int]
) -> Instruction | None:
    """A scalar body's operations, each on all elements of arrays of these dimensions; None for a loop in it, say."""
    whole: dict[Instruction, Instruction] = {}
    for inner in body.instructions:
        if inner.opcode == "parameter":
            whole[inner] = operands[inner["parameter_number"]]
        elif inner.opcode == "tuple":
            results = [whole[operand] for operand in inner.operands]
            whole[inner] = make(like, "tuple", TupleShape(tuple(each.shape for each in results)), results)
        elif inner.opcode == "constant":
            whole[inner] = splat_of(like, inner["literal"], inner.array_shape.with_dimensions(tuple(dimensions)))
        elif inner.opcode in ELEMENTWISE:
            shape = inner.array_shape.with_dimensions(tuple(dimensions))
            whole[inner] = changed(inner, shape=shape, operands=[whole[operand] for operand in inner.operands])
        else:
            return None
    return whole[body.root]
