"""Single elements of arrays, gathered from the arrays from which these are moved and computed.

A gather needs its operand in memory, even a slice, a transpose or a sum that other readers read in place.
"""

from __future__ import annotations

import numpy as np

from engine.ir import GatherDimensionNumbers, Instruction
from engine.ir.affine import Affine, linear, loop_index, pull
from engine.passes.construct import elementwise, reshape, splat_of
from engine.passes.fusible import is_elementwise, is_moving, is_scalar_constant
from engine.passes.rewriting import make

ELEMENT_GATHER = GatherDimensionNumbers((), (0,), (0,), 1)
MOST_ELEMENTS = 1 << 31
"""Elements of an array from which on its positions do not fit in s32."""
MOST_STEPS = 16
"""Most arrays through which elements are followed."""


class PickedElements:
    """The elements [n] of arrays at positions in row-major order, s32 [n]."""

    def __init__(self) -> None:
        self.found: dict[tuple[Instruction, Instruction], Instruction | None] = {}
        self.left = MOST_STEPS

    def of(self, array: Instruction, at: Instruction) -> Instruction | None:
        """The elements; None for too many steps, or too large an array."""
        if (array, at) not in self.found:
            self.left -= 1
            too_large = array.array_shape.elements >= MOST_ELEMENTS
            self.found[array, at] = None if self.left < 0 or too_large else self._of(array, at)
        return self.found[array, at]

    def _of(self, array: Instruction, at: Instruction) -> Instruction | None:
        if array.opcode in ("reshape", "copy"):
            return self.of(array.operands[0], at)
        if is_moving(array):
            return self.of(array.operands[0], _before(array, at))
        shape = array.array_shape.with_dimensions(at.array_shape.dimensions)
        if is_scalar_constant(array):
            return splat_of(array, np.asarray(array["literal"]).reshape(()), shape)
        if array.operands and is_elementwise(array):
            if any(o.array_shape.dimensions != array.array_shape.dimensions for o in array.operands):
                return None
            operands = [self.of(operand, at) for operand in array.operands]
            kept = [operand for operand in operands if operand is not None]
            whole = len(kept) == len(operands)
            return make(array, array.opcode, shape, kept, array.called, **array.attributes) if whole else None
        return take_elements(reshape(array, array, (array.array_shape.elements,)), at)


def take_elements(vector: Instruction, at: Instruction) -> Instruction:
    """The elements of a vector at positions in its bounds."""
    return make(
        *(vector, "gather", vector.array_shape.with_dimensions(at.array_shape.dimensions), (vector, at)),
        gather_dimension_numbers=ELEMENT_GATHER,
        gather_slice_sizes=(1,),
    )


def _before(moving: Instruction, at: Instruction) -> Instruction:
    """Positions in the operand of a moving instruction, given those in its result."""
    dimensions, operand = moving.array_shape.dimensions, moving.operands[0].array_shape
    rank = len(dimensions)
    indices = pull(moving, tuple(loop_index(d, rank) for d in range(rank)), rank)
    assert indices is not None
    affine: Affine = linear(operand, indices, rank)
    total, left = _number(at, affine.constant), at
    for size, coefficient in zip(reversed(dimensions), reversed(affine.coefficients), strict=True):
        index = elementwise(at, "remainder", left, _number(at, size))
        left = elementwise(at, "divide", left, _number(at, size))
        if coefficient and size > 1:
            total = elementwise(at, "add", total, elementwise(at, "multiply", index, _number(at, coefficient)))
    return total


def _number(like: Instruction, value: int) -> Instruction:
    return splat_of(like, np.asarray(value, np.int32), like.array_shape)
