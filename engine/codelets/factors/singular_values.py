"""Singular values, descending, and singular vectors: A = U diag(s) V^T, by Golub and Kahan's algorithm.

Householder reflections from both sides make a matrix bidiagonal; implicit QR steps on that, in float64, make it
diagonal. The rotations are applied to rows of U^T and V^T. Unit: one matrix of at least as many rows as columns, or the
transpose of one; a matrix with an element that is not finite gives NaN.
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
    fill_nan,
    make_reflection,
    norm,
    reflect_columns,
    reflect_rows,
    rotate,
    scale_of,
    set_identity,
    sort_order,
)
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.memory import pointer
from engine.codelets.language.record import Address, Record, word
from engine.machine_code.abi import RESERVED_SCRATCH

MOST_STEPS = 75
"""Most QR steps for one singular value: two or three are usual."""
TOLERANCES = {"f32": 2.0**-30, "f64": 2.0**-53}
"""Entries below this multiple of the bidiagonal matrix's largest row count as zero."""


class SingularValues(Record):
    """Parameters of a codelet of `singular_values`."""

    source: Address = 0  # [rows, columns], or its transpose
    values: Address = 0  # [columns]
    left: Address = 0  # [rows, columns]
    right: Address = 0  # [columns, columns], singular vectors as columns
    rows: int  # not fewer than columns
    columns: int
    transposed: int  # whether the source is [columns, rows]
    with_vectors: int


@inner
def _make_bidiagonal(
    a: Pointer,
    rows: int,
    columns: int,
    d: Pointer,
    e: Pointer,
    v: Pointer,
    sums: Pointer,
    numbers: Pointer,
    taus: Pointer,
) -> None:
    """Finds d, the diagonal, and e[k], the element above d[k]. Reflections stay below d and right of e."""
    e[0] = 0
    for k in range(columns):
        for i in range(k, rows):
            v[i - k] = a[i * columns + k]
        make_reflection(v, rows - k, numbers)
        d[k], taus[k] = numbers[BETA], numbers[TAU]
        reflect_rows(a, k * columns + k + 1, columns, rows - k, columns - k - 1, v, sums, numbers[TAU])
        for i in range(k + 1, rows):
            a[i * columns + k] = v[i - k]
        rest = columns - k - 1
        if rest > 0:
            above = k * columns + k + 1
            for j in range(rest):
                v[j] = a[above + j]
            make_reflection(v, rest, numbers)
            e[k + 1], taus[columns + k] = numbers[BETA], numbers[TAU]
            reflect_columns(a, above + columns, columns, rows - k - 1, rest, v, numbers[TAU])
            for j in range(rest):
                a[above + j] = v[j]


@inner
def _gather_vectors(
    a: Pointer, rows: int, columns: int, u: Pointer, w: Pointer, v: Pointer, sums: Pointer, taus: Pointer
) -> None:
    """Multiplies the reflections from both sides: u [rows, columns] and w [columns, columns]."""
    set_identity(u, rows, columns)
    set_identity(w, columns, columns)
    for step in range(columns):
        k = columns - 1 - step
        v[0] = 1
        for i in range(k + 1, rows):
            v[i - k] = a[i * columns + k]
        reflect_rows(u, k * columns + k, columns, rows - k, columns - k, v, sums, taus[k])
        rest = columns - k - 1
        if rest > 0:
            for j in range(rest):
                v[j] = a[k * columns + k + 1 + j]
            at = (k + 1) * columns + k + 1
            reflect_rows(w, at, columns, rest, rest, v, sums, taus[columns + k])


@inner
def _transpose(source: Pointer, target: Pointer, rows: int, columns: int) -> None:
    for i in range(rows):
        for j in range(columns):
            target[j * rows + i] = source[i * columns + j]


@inner
def _first_row(d: Pointer, e: Pointer, last: int, least: float) -> int:
    """The first row of the block that ends with row `last`: -1 - row where the diagonal above it is zero."""
    row = last
    while row > 0:
        if abs(e[row]) <= least:
            return row
        if abs(d[row - 1]) <= least:
            return -1 - row
        row -= 1
    return 0


@inner
def _clear_row(
    d: Pointer, e: Pointer, first: int, last: int, u: Pointer, rows: int, least: float, numbers: Pointer
) -> None:
    """Rotates e[first] away, above which the diagonal is zero."""
    c, s = 0.0, 1.0
    for i in range(first, last + 1):
        f = s * e[i]
        e[i] = c * e[i]
        if abs(f) <= least:
            break
        g = d[i]
        h = sqrt(f * f + g * g)
        d[i] = h
        c, s = g / h, -f / h
        if rows > 0:
            rotate(u, rows, rows, first - 1, i, c, s, numbers)


@inner
def _step(
    d: Pointer, e: Pointer, first: int, last: int, u: Pointer, rows: int, w: Pointer, columns: int, numbers: Pointer
) -> None:
    """Makes an implicit QR step with a shift on rows first to last, and rotates the rows of u and w."""
    x, y, z, g, h = d[first], d[last - 1], d[last], e[last - 1], e[last]
    f = ((y - z) * (y + z) + (g - h) * (g + h)) / (2 * h * y)
    g = sqrt(f * f + 1)
    f = ((x - z) * (x + z) + h * (y / (f + (g if f >= 0 else -g)) - h)) / x
    c, s = 1.0, 1.0
    for j in range(first, last):
        i = j + 1
        g, y = e[i], d[i]
        h, g = s * g, c * g
        z = norm(f, h)
        e[j] = z
        if z != 0:
            c, s = f / z, h / z
        f, g = x * c + g * s, g * c - x * s
        h, y = y * s, y * c
        if columns > 0:
            rotate(w, columns, columns, j, i, c, s, numbers)
        z = norm(f, h)
        d[j] = z
        if z != 0:
            c, s = f / z, h / z
        f, x = c * g + s * y, c * y - s * g
        if rows > 0:
            rotate(u, rows, rows, j, i, c, s, numbers)
    e[first], e[last], d[last] = 0, f, x


@inner
def _make_diagonal(
    d: Pointer,
    e: Pointer,
    size: int,
    u: Pointer,
    rows: int,
    w: Pointer,
    columns: int,
    numbers: Pointer,
    tolerance: float,
) -> int:
    """Makes QR steps; returns 1 if all converged, with values that are not negative. Empty vectors are not rotated."""
    largest = 0.0
    for i in range(size):
        value = abs(d[i]) + abs(e[i])
        if value > largest:
            largest = value
    least = tolerance * largest
    for step in range(size):
        last, steps = size - 1 - step, 0
        first = _first_row(d, e, last, least)
        while first != last:
            if steps == MOST_STEPS:
                return 0
            steps += 1
            if first < 0:
                _clear_row(d, e, -1 - first, last, u, rows, least, numbers)
            else:
                _step(d, e, first, last, u, rows, w, columns, numbers)
            first = _first_row(d, e, last, least)
        if d[last] < 0:
            d[last] = -d[last]
            for j in range(columns):
                w[last * columns + j] = -w[last * columns + j]
    return 1


@cache
def singular_values(element_type: str) -> Codelet:
    """The codelet for f32 or f64."""
    type_name, item = NUMBA_TYPES[element_type], np.dtype(NUMBA_TYPES[element_type]).itemsize
    tolerance = TOLERANCES[element_type]

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        rows, columns = word(parameters, SingularValues.ROWS), word(parameters, SingularValues.COLUMNS)
        transposed = word(parameters, SingularValues.TRANSPOSED)
        with_vectors = word(parameters, SingularValues.WITH_VECTORS)
        base = scratch + RESERVED_SCRATCH
        d, e = pointer(base, "float64"), pointer(base + 8 * columns, "float64")
        order, rest = pointer(base + 16 * columns, "int64"), base + 24 * columns
        numbers, v = pointer(rest, type_name), pointer(rest + NUMBERS * item, type_name)
        sums = pointer(rest + (NUMBERS + rows) * item, type_name)
        taus = pointer(rest + (NUMBERS + rows + columns) * item, type_name)
        rest += (NUMBERS + rows + 3 * columns) * item
        a, u = pointer(rest, type_name), pointer(rest + rows * columns * item, type_name)
        w = pointer(rest + 2 * rows * columns * item, type_name)
        wt = pointer(rest + (2 * rows + columns) * columns * item, type_name)
        for unit in range(lo, hi):
            source = pointer(word(parameters, SingularValues.SOURCE) + unit * rows * columns * item, type_name)
            values = pointer(word(parameters, SingularValues.VALUES) + unit * columns * item, type_name)
            left = pointer(word(parameters, SingularValues.LEFT) + unit * rows * columns * item, type_name)
            right = pointer(word(parameters, SingularValues.RIGHT) + unit * columns * columns * item, type_name)
            scale, converged = scale_of(source, rows * columns), 0
            if scale == scale:
                if transposed:
                    _transpose(source, a, columns, rows)
                else:
                    for i in range(rows * columns):
                        a[i] = source[i]
                for i in range(rows * columns):
                    a[i] = a[i] * scale
                _make_bidiagonal(a, rows, columns, d, e, v, sums, numbers, taus)
                if with_vectors:
                    _gather_vectors(a, rows, columns, u, w, v, sums, taus)
                    _transpose(u, a, rows, columns)
                    _transpose(w, wt, columns, columns)
                height, width = (rows, columns) if with_vectors else (0, 0)
                converged = _make_diagonal(d, e, columns, a, height, wt, width, numbers, tolerance)
            if converged == 0:
                fill_nan(values, columns)
                if with_vectors:
                    fill_nan(left, rows * columns)
                    fill_nan(right, columns * columns)
                continue
            sort_order(d, order, columns, 1)
            for j in range(columns):
                values[j] = d[order[j]] / scale
            if with_vectors:
                for i in range(rows):
                    for j in range(columns):
                        left[i * columns + j] = a[order[j] * rows + i]
                for i in range(columns):
                    for j in range(columns):
                        right[i * columns + j] = wt[order[j] * columns + i]

    return Codelet(factorize, f"singular_values_{element_type}")


def singular_values_scratch_bytes(rows: int, columns: int, element_type: str) -> int:
    """The bytes of scratch for matrices of these sizes."""
    elements = NUMBERS + rows + 3 * columns + 2 * (rows + columns) * columns
    return 24 * columns + elements * np.dtype(NUMBA_TYPES[element_type]).itemsize
