"""dot: products summed over contracting dimensions, for each index of the batch dimensions."""

from __future__ import annotations

from math import prod

import numpy as np

from engine.ir import DotDimensionNumbers, Instruction
from engine.ops.floats import computing
from engine.ops.registry import definition


def accumulating(x: np.ndarray, result: np.dtype) -> np.ndarray:
    """An operand in the accumulation type: the result's, but float32 for 16-bit floats."""
    return x.astype(computing(np.empty(0, result)).dtype)


@definition("dot")
def _dot(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """The product, whose dimensions are those of the batch, the left operand's free ones, then the right operand's."""
    numbers: DotDimensionNumbers = instruction["dot_dimension_numbers"]
    lhs, rhs = (accumulating(x, instruction.array_shape.dtype) for x in operands)
    contracting, batch = list(numbers.lhs_contracting_dimensions), list(numbers.lhs_batch_dimensions)
    lhs_free, rhs_free = numbers.free(0, lhs.ndim), numbers.free(1, rhs.ndim)
    batch_sizes = [lhs.shape[d] for d in batch]
    depth = prod([lhs.shape[d] for d in contracting])
    rows = prod([lhs.shape[d] for d in lhs_free])
    columns = prod([rhs.shape[d] for d in rhs_free])
    left = lhs.transpose(batch + lhs_free + contracting).reshape([*batch_sizes, rows, depth])
    rhs_order = [*numbers.rhs_batch_dimensions, *numbers.rhs_contracting_dimensions, *rhs_free]
    right = rhs.transpose(rhs_order).reshape([*batch_sizes, depth, columns])
    shape = instruction.array_shape
    return np.matmul(left, right).reshape(shape.dimensions).astype(shape.dtype)
