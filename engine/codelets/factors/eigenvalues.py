"""Eigenvalues, ascending, and eigenvectors of symmetric matrices, of which the lower triangle is read.

Householder reflections make a matrix tridiagonal; implicit QL steps in float64 then make it diagonal. The rotations are
applied to rows of V^T. A unit is one matrix. The results for a matrix with a non-finite element are NaN.
"""

from __future__ import annotations

from functools import cache
from math import sqrt

import numpy as np

from engine.codelets.factors.reflections import (
    BETA,
    NUMBA_TYPES,
    NUMBERS,
    TAU,
    Pointer,
    dot,
    fill_nan,
    make_reflection,
    norm,
    reflect_rows,
    rotate,
    scale_of,
    set_identity,
    sort_order,
    sum_rows,
)
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.memory import pointer
from engine.codelets.language.record import Address, Record, word
from engine.machine_code.abi import RESERVED_SCRATCH

MOST_STEPS = 60
"""Most QL steps for one eigenvalue: two or three are usual."""
TOLERANCES = {"f32": 2.0**-30, "f64": 2.0**-53}
NEGLIGIBLE = 1e-100
"""Entries below this multiple of the tridiagonal matrix's largest row count as zero beside the diagonal."""


class Eigenvalues(Record):
    """Parameters of a codelet of `eigenvalues`."""

    source: Address = 0
    values: Address = 0
    vectors: Address = 0  # as columns
    size: int
    with_vectors: int


@inner
def _make_tridiagonal(
    a: Pointer, size: int, diagonal: Pointer, beside: Pointer, v: Pointer, w: Pointer, numbers: Pointer, taus: Pointer
) -> None:
    """Makes a matrix tridiagonal; reflection k stays in row k, right of the diagonal."""
    for k in range(size - 1):
        rest = size - k - 1
        for j in range(rest):
            v[j] = a[k * size + k + 1 + j]
        make_reflection(v, rest, numbers)
        tau = numbers[TAU]
        taus[k] = tau
        diagonal[k], beside[k] = a[k * size + k], numbers[BETA]
        for j in range(rest):
            a[k * size + k + 1 + j] = v[j]
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


@cache
def eigenvalues(element_type: str) -> Codelet:
    """The codelet for f32 or f64."""
    type_name, item = NUMBA_TYPES[element_type], np.dtype(NUMBA_TYPES[element_type]).itemsize
    tolerance = TOLERANCES[element_type]

    @inner
    def make_diagonal(diagonal: Pointer, beside: Pointer, size: int, z: Pointer, columns: int, numbers: Pointer) -> int:
        """Makes QL steps; returns 1 if all of them converged."""
        largest = 0.0
        for i in range(size):
            value = abs(diagonal[i]) + abs(beside[i])
            if value > largest:
                largest = value
        least = NEGLIGIBLE * largest
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

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        size, with_vectors = word(parameters, Eigenvalues.SIZE), word(parameters, Eigenvalues.WITH_VECTORS)
        base = scratch + RESERVED_SCRATCH
        diagonal, beside = pointer(base, "float64"), pointer(base + 8 * size, "float64")
        order, rest = pointer(base + 16 * size, "int64"), base + 24 * size
        numbers, v = pointer(rest, type_name), pointer(rest + NUMBERS * item, type_name)
        w, taus = (
            pointer(rest + (NUMBERS + size) * item, type_name),
            pointer(rest + (NUMBERS + 2 * size) * item, type_name),
        )
        rest += (NUMBERS + 3 * size) * item
        a, q = pointer(rest, type_name), pointer(rest + size * size * item, type_name)
        for unit in range(lo, hi):
            source = pointer(word(parameters, Eigenvalues.SOURCE) + unit * size * size * item, type_name)
            values = pointer(word(parameters, Eigenvalues.VALUES) + unit * size * item, type_name)
            vectors = pointer(word(parameters, Eigenvalues.VECTORS) + unit * size * size * item, type_name)
            for i in range(size):
                for j in range(i + 1):
                    a[i * size + j] = source[i * size + j]
                    a[j * size + i] = source[i * size + j]
            scale = scale_of(a, size * size)
            converged = 0
            if scale == scale:
                for i in range(size * size):
                    a[i] = a[i] * scale
                _make_tridiagonal(a, size, diagonal, beside, v, w, numbers, taus)
                if with_vectors:
                    set_identity(q, size, size)
                    for step in range(size - 1):
                        k = size - 2 - step
                        for j in range(size - k - 1):
                            v[j] = a[k * size + k + 1 + j]
                        reflect_rows(q, (k + 1) * size + k + 1, size, size - k - 1, size - k - 1, v, w, taus[k])
                    for i in range(size):
                        for j in range(size):
                            a[j * size + i] = q[i * size + j]
                converged = make_diagonal(diagonal, beside, size, a, size if with_vectors else 0, numbers)
            if converged == 0:
                fill_nan(values, size)
                if with_vectors:
                    fill_nan(vectors, size * size)
                continue
            sort_order(diagonal, order, size, 0)
            for j in range(size):
                values[j] = diagonal[order[j]] / scale
            if with_vectors:
                for i in range(size):
                    for j in range(size):
                        vectors[i * size + j] = a[order[j] * size + i]

    return Codelet(factorize, f"eigenvalues_{element_type}")


def eigenvalues_scratch_bytes(size: int, element_type: str) -> int:
    """The bytes of scratch for matrices of this size."""
    return 24 * size + (NUMBERS + 3 * size + 2 * size * size) * np.dtype(NUMBA_TYPES[element_type]).itemsize
