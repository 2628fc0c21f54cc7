"""HLO triangular-solve: X of op(A) X = B, or of X op(A) = B; one triangle of A is read.

Both are a system M x = b for each right-hand side, a column or a row of B: M is A, transposed or not. Unit: a block of
right-hand sides of one matrix, solved side by side in scratch, so that the inner loops run across them.

Strides count elements.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from engine.codelets.build import Codelet, inner
from engine.codelets.memory import pointer
from engine.codelets.record import Address, Record
from engine.codelets.rows import word
from engine.errors import UnsupportedOperation
from engine.machine_code.abi import RESERVED_SCRATCH

NUMBA_TYPES = {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
BLOCK = 32
"""Right-hand sides of one unit."""
Pointer = Any  # the result of `pointer`: Numba indexes it like an array


class TriangularSolve(Record):
    """The parameters of a codelet of `triangular_solve`."""

    a: Address = 0
    b: Address = 0
    x: Address = 0
    size: int
    right_sides: int
    matrix_row: int  # stride in A along a row index of M
    matrix_column: int
    unknown: int  # stride in B and X from one unknown to the next
    right_side: int  # stride in B and X from one right-hand side to the next
    lower: int  # whether M is lower triangular
    unit_diagonal: int
    conjugate: int
    blocks: int  # units of one matrix


@inner
def _solve(
    x: Pointer, a: Pointer, size: int, row: int, column: int, lower: int, unit_diagonal: int, conjugate: int
) -> None:
    """Solves for x [size, BLOCK] in place, from the first unknown on, or from the last for an upper M."""
    for step in range(size):
        i = step if lower else size - 1 - step
        for solved in range(step):
            k = solved if lower else size - 1 - solved
            factor = a[i * row + k * column]
            if conjugate:
                factor = factor.conjugate()
            for c in range(BLOCK):
                x[i * BLOCK + c] -= factor * x[k * BLOCK + c]
        if not unit_diagonal:
            pivot = a[i * row + i * column]
            if conjugate:
                pivot = pivot.conjugate()
            if pivot == 0:  # by which Numba divides no complex number
                infinity = 1 / pivot.real
                for c in range(BLOCK):
                    x[i * BLOCK + c] *= infinity
            else:
                for c in range(BLOCK):
                    x[i * BLOCK + c] /= pivot


@inner
def _load(x: Pointer, b: Pointer, size: int, unknown: int, right_side: int, count: int) -> None:
    """Loads a block; one that is not full is padded with zeros."""
    for i in range(size):
        for c in range(BLOCK):
            x[i * BLOCK + c] = 0
        for c in range(count):
            x[i * BLOCK + c] = b[i * unknown + c * right_side]


@inner
def _store(x: Pointer, target: Pointer, size: int, unknown: int, right_side: int, count: int) -> None:
    for i in range(size):
        for c in range(count):
            target[i * unknown + c * right_side] = x[i * BLOCK + c]


@cache
def triangular_solve(element_type: str) -> Codelet:
    """The codelet for an element type. Raises UnsupportedOperation for one that is neither float nor complex."""
    if element_type not in NUMBA_TYPES:
        raise UnsupportedOperation(
            f"Expected a triangular-solve of {', '.join(NUMBA_TYPES)}. Received: {element_type}. Convert around it."
        )
    type_name, item = NUMBA_TYPES[element_type], np.dtype(NUMBA_TYPES[element_type]).itemsize

    def solve(parameters: int, lo: int, hi: int, scratch: int) -> None:
        size, sides = word(parameters, TriangularSolve.SIZE), word(parameters, TriangularSolve.RIGHT_SIDES)
        row, column = word(parameters, TriangularSolve.MATRIX_ROW), word(parameters, TriangularSolve.MATRIX_COLUMN)
        unknown, right = word(parameters, TriangularSolve.UNKNOWN), word(parameters, TriangularSolve.RIGHT_SIDE)
        blocks = word(parameters, TriangularSolve.BLOCKS)
        x = pointer(scratch + RESERVED_SCRATCH, type_name)
        for unit in range(lo, hi):
            matrix, first = unit // blocks, unit % blocks * BLOCK
            count = min(BLOCK, sides - first)
            offset = (matrix * size * sides + first * right) * item
            a = pointer(word(parameters, TriangularSolve.A) + matrix * size * size * item, type_name)
            _load(x, pointer(word(parameters, TriangularSolve.B) + offset, type_name), size, unknown, right, count)
            _solve(
                *(x, a, size, row, column, word(parameters, TriangularSolve.LOWER)),
                word(parameters, TriangularSolve.UNIT_DIAGONAL),
                word(parameters, TriangularSolve.CONJUGATE),
            )
            _store(x, pointer(word(parameters, TriangularSolve.X) + offset, type_name), size, unknown, right, count)

    return Codelet(solve, f"triangular_solve_{element_type}")


def triangular_solve_scratch_bytes(size: int, element_type: str) -> int:
    """The bytes of scratch for systems of `size` unknowns."""
    return size * BLOCK * np.dtype(NUMBA_TYPES[element_type]).itemsize


def encode_triangular_solve(
    operands: tuple[Address, Address, Address],
    *,
    size: int,
    right_sides: int,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    transpose_a: str,
) -> TriangularSolve:
    """The parameters for A, B and X at these addresses; each matrix has `blocks` units.

    B is [size, right_sides], or its transpose.
    """
    transposed = (transpose_a != "NO_TRANSPOSE") == left_side
    a, b, x = operands
    return TriangularSolve(
        a=a,
        b=b,
        x=x,
        size=size,
        right_sides=right_sides,
        matrix_row=1 if transposed else size,
        matrix_column=size if transposed else 1,
        unknown=right_sides if left_side else 1,
        right_side=1 if left_side else size,
        lower=lower != transposed,
        unit_diagonal=unit_diagonal,
        conjugate=transpose_a == "ADJOINT",
        blocks=-(-right_sides // BLOCK),
    )
