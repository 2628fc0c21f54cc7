"""LU factors with row pivoting, and solutions of systems by elimination; rows of a matrix are contiguous.

Unit: one matrix. The pivot is the first of the largest elements of a column, as in LAPACK. Tiny matrices and right-hand
sides are scaled up by powers of two, as differences might vanish. Huge ones are not scaled down: their small elements
would vanish.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from engine.codelets.factors.matrices import TINY, Matrices, Pointer, copy_scaled, scale_of
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import NUMBA_NAMES
from engine.codelets.language.lanes import ITEM_BYTES
from engine.codelets.language.memory import pointer
from engine.machine_code.abi import RESERVED_SCRATCH


@cache
def _scaling(element_type: str) -> Callable[[int, int], float]:
    """Makes the function that returns the power of two, at least 1, to scale an array by; 1 if any is not finite.

    Floats without their signs are ordered like their bits, so the maximum is found in vectors of integers.
    """
    type_name = NUMBA_NAMES[element_type]
    kind, bits_type = np.dtype(type_name), {"f32": "int32", "f64": "int64"}[element_type]
    least = int(np.array(TINY, kind).view(bits_type))
    mask = int(np.iinfo(bits_type).max)

    @inner
    def scale(address: int, size: int) -> float:
        bits, largest = pointer(address, bits_type), 0
        for i in range(size):
            largest = max(largest, bits[i] & mask)
        return 1.0 if largest >= least else scale_of(pointer(address, type_name), size)

    return scale


@inner
def _pivot(a: Pointer, size: int, pitch: int, column: int) -> int:
    """The row, from the diagonal on, with the largest element of a column; NaN is larger than all."""
    found, largest = column, abs(a[column * pitch + column])
    for i in range(column + 1, size):
        value = abs(a[i * pitch + column])
        if value > largest or (value != value and largest == largest):
            found, largest = i, value
    return found


@inner
def _swap(a: Pointer, pitch: int, i: int, j: int) -> None:
    for k in range(pitch):
        kept = a[i * pitch + k]
        a[i * pitch + k] = a[j * pitch + k]
        a[j * pitch + k] = kept


@inner
def _eliminate(a: Pointer, size: int, pitch: int, k: int) -> None:
    """Subtracts multiples of row k from the rows below; the factors stay in column k."""
    pivot, top = a[k * pitch + k], k * pitch
    if pivot == 0:
        return
    for i in range(k + 1, size):
        factor, row = a[i * pitch + k] / pivot, i * pitch
        a[row + k] = factor
        for j in range(k + 1, pitch):
            a[row + j] -= factor * a[top + j]


@inner
def _factorize(a: Pointer, size: int, pitch: int, order: Pointer) -> int:
    """Factorizes the first `size` columns of rows of `pitch` elements; returns the sign of the order: 1 or -1.

    L without its diagonal of ones is below U. Row i of the factors was row order[i].
    """
    sign = 1
    for i in range(size):
        order[i] = i
    for k in range(size):
        found = _pivot(a, size, pitch, k)
        if found != k:
            _swap(a, pitch, k, found)
            order[k], order[found] = order[found], order[k]
            sign = -sign
        _eliminate(a, size, pitch, k)
    return sign


@cache
def triangular_factors(element_type: str) -> Codelet:
    """The codelet for LU factors in f32 or f64."""
    type_name, item, scale_at = NUMBA_NAMES[element_type], ITEM_BYTES[element_type], _scaling(element_type)

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given = Matrices.read(parameters)
        size, elements = given.rows, given.rows * given.rows
        for unit in range(lo, hi):
            source = given.a + unit * elements * item
            a, scale = pointer(given.first + unit * elements * item, type_name), scale_at(source, elements)
            copy_scaled(pointer(source, type_name), 0, a, 0, elements, scale)
            sign = pointer(given.third + unit * item, type_name)
            sign[0] = _factorize(a, size, size, pointer(given.second + unit * size * 4, "int32"))
            if scale != 1:
                for i in range(size):
                    for j in range(i, size):
                        a[i * size + j] = a[i * size + j] / scale

    return Codelet(factorize, f"triangular_factors_{element_type}")


@cache
def solution(element_type: str) -> Codelet:
    """The codelet for the X of A X = B, in f32 or f64. A singular A gives infinities and NaN."""
    type_name, item, scale_at = NUMBA_NAMES[element_type], ITEM_BYTES[element_type], _scaling(element_type)

    def solve(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given = Matrices.read(parameters)
        size, sides, pitch = given.rows, given.width, given.rows + given.width
        a = pointer(scratch + RESERVED_SCRATCH, type_name)
        order = pointer(scratch + RESERVED_SCRATCH + size * pitch * item, "int32")
        for unit in range(lo, hi):
            matrix, right = given.a + unit * size * size * item, given.b + unit * size * sides * item
            scale, right_scale = scale_at(matrix, size * size), scale_at(right, size * sides)
            for i in range(size):
                copy_scaled(pointer(matrix, type_name), i * size, a, i * pitch, size, scale)
                copy_scaled(pointer(right, type_name), i * sides, a, i * pitch + size, sides, right_scale)
            _factorize(a, size, pitch, order)
            x = pointer(given.first + unit * size * sides * item, type_name)
            for step in range(size):
                i = size - 1 - step
                row = i * pitch + size
                for k in range(i + 1, size):
                    factor, solved = a[i * pitch + k], k * pitch + size
                    for j in range(sides):
                        a[row + j] -= factor * a[solved + j]
                pivot = a[i * pitch + i]
                for j in range(sides):
                    a[row + j] = a[row + j] / pivot
                copy_scaled(a, row, x, i * sides, sides, scale / right_scale)

    return Codelet(solve, f"solution_{element_type}")


def solution_scratch_bytes(size: int, right_sides: int, element_type: str) -> int:
    """The bytes of scratch for a system of these sizes."""
    return size * (size + right_sides) * ITEM_BYTES[element_type] + 4 * size
