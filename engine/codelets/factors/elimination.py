"""LU factors with row pivoting, and solutions of systems by elimination; rows of a matrix are contiguous.

Unit: one matrix. The pivot is the first of the largest elements of a column, as in LAPACK. Tiny matrices and right-hand
sides are scaled up by powers of two, as differences might vanish. Huge ones are not scaled down: their small elements
would vanish.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from engine.codelets.factors.reflections import NUMBA_TYPES, TINY, Pointer, scale_of
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.memory import pointer
from engine.codelets.language.record import Address, Record, word
from engine.machine_code.abi import RESERVED_SCRATCH


class Factors(Record):
    """Parameters of a codelet of `triangular_factors`."""

    source: Address = 0  # [size, size]
    factors: Address = 0  # L without its diagonal of ones below U
    order: Address = 0  # int32 [size]: row i of the factors is row order[i] of the source
    sign: Address = 0  # of the permutation: 1 or -1
    size: int


class LinearSystem(Record):
    """Parameters of a codelet of `solution`."""

    a: Address = 0  # [size, size]
    b: Address = 0  # [size, right_sides]
    x: Address = 0
    size: int
    right_sides: int


@cache
def _scaling(element_type: str) -> Callable[[int, int], float]:
    """Makes the function that returns the power of two, at least 1, to scale an array by; 1 if any is not finite.

    Floats without their signs are ordered like their bits, so the maximum is found in vectors of integers.
    """
    type_name = NUMBA_TYPES[element_type]
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
def _swap(a: Pointer, pitch: int, columns: int, i: int, j: int) -> None:
    for k in range(columns):
        kept = a[i * pitch + k]
        a[i * pitch + k] = a[j * pitch + k]
        a[j * pitch + k] = kept


@inner
def _eliminate(a: Pointer, size: int, pitch: int, columns: int, k: int) -> None:
    """Subtracts multiples of row k from the rows below; the factors stay in column k."""
    pivot, top = a[k * pitch + k], k * pitch
    if pivot == 0:
        return
    for i in range(k + 1, size):
        factor, row = a[i * pitch + k] / pivot, i * pitch
        a[row + k] = factor
        for j in range(k + 1, columns):
            a[row + j] -= factor * a[top + j]


@cache
def triangular_factors(element_type: str) -> Codelet:
    """The codelet for LU factors in f32 or f64."""
    type_name, item = NUMBA_TYPES[element_type], np.dtype(NUMBA_TYPES[element_type]).itemsize
    scale_at = _scaling(element_type)

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        size = word(parameters, Factors.SIZE)
        for unit in range(lo, hi):
            source = pointer(word(parameters, Factors.SOURCE) + unit * size * size * item, type_name)
            a = pointer(word(parameters, Factors.FACTORS) + unit * size * size * item, type_name)
            order = pointer(word(parameters, Factors.ORDER) + unit * size * 4, "int32")
            sign = pointer(word(parameters, Factors.SIGN) + unit * item, type_name)
            scale = scale_at(word(parameters, Factors.SOURCE) + unit * size * size * item, size * size)
            for i in range(size * size):
                a[i] = source[i] * scale
            for i in range(size):
                order[i] = i
            sign[0] = 1
            for k in range(size):
                found = _pivot(a, size, size, k)
                if found != k:
                    _swap(a, size, size, k, found)
                    kept = order[k]
                    order[k] = order[found]
                    order[found] = kept
                    sign[0] = -sign[0]
                _eliminate(a, size, size, size, k)
            if scale != 1:
                for i in range(size):
                    for j in range(i, size):
                        a[i * size + j] = a[i * size + j] / scale

    return Codelet(factorize, f"triangular_factors_{element_type}")


@cache
def solution(element_type: str) -> Codelet:
    """The codelet for the X of A X = B, in f32 or f64. A singular A gives infinities and NaN."""
    type_name, item = NUMBA_TYPES[element_type], np.dtype(NUMBA_TYPES[element_type]).itemsize
    scale_at = _scaling(element_type)

    def solve(parameters: int, lo: int, hi: int, scratch: int) -> None:
        size, sides = word(parameters, LinearSystem.SIZE), word(parameters, LinearSystem.RIGHT_SIDES)
        pitch, a = size + sides, pointer(scratch + RESERVED_SCRATCH, type_name)
        for unit in range(lo, hi):
            source = pointer(word(parameters, LinearSystem.A) + unit * size * size * item, type_name)
            b = pointer(word(parameters, LinearSystem.B) + unit * size * sides * item, type_name)
            x = pointer(word(parameters, LinearSystem.X) + unit * size * sides * item, type_name)
            scale = scale_at(word(parameters, LinearSystem.A) + unit * size * size * item, size * size)
            right_scale = scale_at(word(parameters, LinearSystem.B) + unit * size * sides * item, size * sides)
            for i in range(size):
                for j in range(size):
                    a[i * pitch + j] = source[i * size + j] * scale
                for j in range(sides):
                    a[i * pitch + size + j] = b[i * sides + j] * right_scale
            for k in range(size):
                found = _pivot(a, size, pitch, k)
                if found != k:
                    _swap(a, pitch, pitch, k, found)
                _eliminate(a, size, pitch, pitch, k)
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
                    x[i * sides + j] = a[row + j]
            if scale != 1 or right_scale != 1:
                for i in range(size):
                    for j in range(sides):
                        x[i * sides + j] = a[i * pitch + size + j] * (scale / right_scale)

    return Codelet(solve, f"solution_{element_type}")


def solution_scratch_bytes(size: int, right_sides: int, element_type: str) -> int:
    """The bytes of scratch for a system of these sizes."""
    return size * (size + right_sides) * np.dtype(NUMBA_TYPES[element_type]).itemsize
