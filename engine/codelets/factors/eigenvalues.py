"""Eigenvalues, ascending, and eigenvectors of symmetric matrices, of which the lower triangle is read.

Householder reflections make a matrix tridiagonal; implicit QL steps in float64 then make it diagonal. The rotations are
applied to rows of V^T. A unit is one matrix. The results for a matrix with a non-finite element are NaN.
"""

from __future__ import annotations

from functools import cache
from math import sqrt

from engine.codelets.factors.matrices import (
    Matrices,
    Pointer,
    copy_scaled,
    fill_nan,
    put_columns,
    scale_of,
    sort_order,
    transpose,
)
from engine.codelets.factors.reflections import (
    BETA,
    NUMBERS,
    TAU,
    TOLERANCES,
    dot,
    largest_row,
    norm,
    product_of_rows,
    reflection_of_row,
    rotate,
    sum_rows,
)
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import NUMBA_NAMES
from engine.codelets.language.lanes import ITEM_BYTES
from engine.codelets.language.memory import pointer
from engine.machine_code.abi import RESERVED_SCRATCH

MOST_STEPS = 60
"""Most QL steps for one eigenvalue: two or three are usual."""
NEGLIGIBLE = 1e-100
"""Entries below this multiple of the tridiagonal matrix's largest row count as zero beside the diagonal."""


@inner
def _make_tridiagonal(
    a: Pointer, size: int, diagonal: Pointer, beside: Pointer, v: Pointer, w: Pointer, numbers: Pointer, taus: Pointer
) -> None:
    """Makes a matrix tridiagonal; reflection k stays in row k, right of the diagonal."""
    for k in range(size - 1):
        rest = size - k - 1
        reflection_of_row(a, k * size + k + 1, rest, v, numbers)
        tau = numbers[TAU]
        taus[k] = tau
        diagonal[k], beside[k] = a[k * size + k], numbers[BETA]
        if tau != 0:
            at = (k + 1) * size + k + 1
            sum_rows(a, at, size, rest, rest, v, w)  # symmetric, so this is A v
            numbers[4] = 0.5 * tau * tau * dot(w, 0, v, rest)
            half = numbers[4]
            for j in range(rest):
                w[j] = tau * w[j] - half * v[j]
            for i in range(rest):
                first, second, row = v[i], w[i], at + i * size
                for j in range(rest):
                    a[row + j] -= first * w[j] + second * v[j]
    diagonal[size - 1], beside[size - 1] = a[size * size - 1], 0


@inner
def _split(diagonal: Pointer, beside: Pointer, first: int, size: int, tolerance: float, least: float) -> int:
    """The last row of the block that begins with row `first` and has no zero beside its diagonal."""
    for m in range(first, size - 1):
        value = abs(beside[m])
        if value <= least or value <= tolerance * (abs(diagonal[m]) + abs(diagonal[m + 1])):
            return m
    return size - 1


@inner
def _step(
    diagonal: Pointer, beside: Pointer, first: int, last: int, z: Pointer, size: int, columns: int, numbers: Pointer
) -> None:
    """Makes an implicit QL step on rows first to last, and rotates the rows of z."""
    g = (diagonal[first + 1] - diagonal[first]) / (2 * beside[first])
    r = sqrt(g * g + 1)
    g = diagonal[last] - diagonal[first] + beside[first] / (g + (r if g >= 0 else -r))
    s, c, p = 1.0, 1.0, 0.0
    i = last - 1
    while i >= first:
        f, b = s * beside[i], c * beside[i]
        r = norm(f, g)
        beside[i + 1] = r
        if r == 0:
            diagonal[i + 1] -= p
            beside[last] = 0
            return
        s, c = f / r, g / r
        g = diagonal[i + 1] - p
        r = (diagonal[i] - g) * s + 2 * c * b
        p = s * r
        diagonal[i + 1] = g + p
        g = c * r - b
        if columns > 0:
            rotate(z, size, columns, i, i + 1, c, -s, numbers)
        i -= 1
    diagonal[first] -= p
    beside[first], beside[last] = g, 0


@inner
def _make_diagonal(
    diagonal: Pointer, beside: Pointer, size: int, z: Pointer, columns: int, numbers: Pointer, tolerance: float
) -> int:
    """Makes QL steps; returns 1 if all of them converged."""
    least = NEGLIGIBLE * largest_row(diagonal, beside, size)
    for first in range(size):
        steps = 0
        last = _split(diagonal, beside, first, size, tolerance, least)
        while last != first:
            if steps == MOST_STEPS:
                return 0
            steps += 1
            _step(diagonal, beside, first, last, z, size, columns, numbers)
            last = _split(diagonal, beside, first, size, tolerance, least)
    return 1


@cache
def eigenvalues(element_type: str) -> Codelet:
    """The codelet for f32 or f64."""
    type_name, item, tolerance = NUMBA_NAMES[element_type], ITEM_BYTES[element_type], TOLERANCES[element_type]

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given, base = Matrices.read(parameters), scratch + RESERVED_SCRATCH
        size, width = given.rows, given.rows if given.with_vectors else 0
        diagonal, beside = pointer(base, "float64"), pointer(base + 8 * size, "float64")
        order, rest = pointer(base + 16 * size, "int64"), base + 24 * size
        numbers, v = pointer(rest, type_name), pointer(rest + NUMBERS * item, type_name)
        w = pointer(rest + (NUMBERS + size) * item, type_name)
        taus = pointer(rest + (NUMBERS + 2 * size) * item, type_name)
        rest += (NUMBERS + 3 * size) * item
        a, q = pointer(rest, type_name), pointer(rest + size * size * item, type_name)
        for unit in range(lo, hi):
            source = pointer(given.a + unit * size * size * item, type_name)
            values = pointer(given.first + unit * size * item, type_name)
            vectors = pointer(given.second + unit * size * size * item, type_name)
            for i in range(size):
                for j in range(i + 1):
                    a[i * size + j] = source[i * size + j]
                    a[j * size + i] = source[i * size + j]
            scale, converged = scale_of(a, size * size), 0
            if scale == scale:
                copy_scaled(a, 0, a, 0, size * size, scale)
                _make_tridiagonal(a, size, diagonal, beside, v, w, numbers, taus)
                if given.with_vectors:
                    product_of_rows(a, size, q, v, w, taus, 0)
                    transpose(q, a, size, size)
                converged = _make_diagonal(diagonal, beside, size, a, width, numbers, tolerance)
            if converged == 0:
                fill_nan(values, size)
                fill_nan(vectors, size * width)
                continue
            sort_order(diagonal, order, size, 0)
            for j in range(size):
                values[j] = diagonal[order[j]] / scale
            put_columns(a, order, vectors, width, size)

    return Codelet(factorize, f"eigenvalues_{element_type}")


def eigenvalues_scratch_bytes(size: int, element_type: str) -> int:
    """The bytes of scratch for matrices of this size."""
    return 24 * size + (NUMBERS + 3 * size + 2 * size * size) * ITEM_BYTES[element_type]
