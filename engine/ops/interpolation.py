"""The definition of interpolations of images: sums of the elements whose weights are not zero."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction
from engine.ir.interpolation import INTERPOLATION, interpolation_matrices, interpolation_shape
from engine.ops.registry import custom_call


@custom_call(INTERPOLATION)
def _interpolated(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """The result, summed in float64 along rows and rounded, then along columns."""
    by_rows, by_columns = interpolation_matrices(instruction)
    rows = _along(by_rows, operands[0], 1)
    result: np.ndarray = _along(by_columns, rows, 2)
    assert result.shape == interpolation_shape(instruction).dimensions
    return result


def _along(matrix: np.ndarray, images: np.ndarray, axis: int) -> np.ndarray:
    """The products of a matrix with images along an axis, without the terms of the matrix's zeros."""
    moved = np.moveaxis(images.astype(np.float64), axis, 0)
    result = np.zeros((len(matrix), *moved.shape[1:]))
    for row, column in zip(*np.nonzero(matrix), strict=True):
        result[row] += float(matrix[row, column]) * moved[column]
    return np.moveaxis(result, 0, axis).astype(np.float32)
