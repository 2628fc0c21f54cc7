"""Singular values, descending, and singular vectors: A = U diag(s) V^T, by Golub and Kahan's algorithm.

Householder reflections from both sides make a matrix bidiagonal; implicit QR steps on that, in float64, make it
diagonal. The rotations are applied to rows of U^T and V^T. Unit: one matrix; one with fewer rows than columns is
transposed. A matrix with an element that is not finite gives NaN.
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
    largest_row,
    norm,
    product_of_columns,
    product_of_rows,
    reflect_by_column,
    reflect_columns,
    reflection_of_row,
    rotate,
)
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import NUMBA_NAMES
from engine.codelets.language.lanes import ITEM_BYTES
from engine.codelets.language.memory import pointer
from engine.machine_code.abi import RESERVED_SCRATCH

MOST_STEPS = 75
"""Most QR steps for one singular value: two or three are usual."""


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
        d[k] = reflect_by_column(a, k, rows, columns, v, sums, numbers, taus)
        rest = columns - k - 1
        if rest > 0:
            above = k * columns + k + 1
            reflection_of_row(a, above, rest, v, numbers)
            e[k + 1], taus[columns + k] = numbers[BETA], numbers[TAU]
            reflect_columns(a, above + columns, columns, rows - k - 1, rest, v, numbers[TAU])


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
    least = tolerance * largest_row(d, e, size)
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
    type_name, item, tolerance = NUMBA_NAMES[element_type], ITEM_BYTES[element_type], TOLERANCES[element_type]

    def factorize(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given, base = Matrices.read(parameters), scratch + RESERVED_SCRATCH
        rows, columns = max(given.rows, given.columns), min(given.rows, given.columns)
        d, e = pointer(base, "float64"), pointer(base + 8 * columns, "float64")
        order, rest = pointer(base + 16 * columns, "int64"), base + 24 * columns
        numbers, v = pointer(rest, type_name), pointer(rest + NUMBERS * item, type_name)
        sums = pointer(rest + (NUMBERS + rows) * item, type_name)
        taus = pointer(rest + (NUMBERS + rows + columns) * item, type_name)
        rest += (NUMBERS + rows + 3 * columns) * item
        a, u = pointer(rest, type_name), pointer(rest + rows * columns * item, type_name)
        w = pointer(rest + 2 * rows * columns * item, type_name)
        wt = pointer(rest + (2 * rows + columns) * columns * item, type_name)
        high, wide = (given.second, given.third) if rows == given.rows else (given.third, given.second)
        for unit in range(lo, hi):
            source = pointer(given.a + unit * rows * columns * item, type_name)
            values = pointer(given.first + unit * columns * item, type_name)
            left = pointer(high + unit * rows * columns * item, type_name)
            right = pointer(wide + unit * columns * columns * item, type_name)
            scale, converged = scale_of(source, rows * columns), 0
            if scale == scale:
                if rows == given.rows:
                    copy_scaled(source, 0, a, 0, rows * columns, scale)
                else:
                    transpose(source, a, columns, rows)
                    copy_scaled(a, 0, a, 0, rows * columns, scale)
                _make_bidiagonal(a, rows, columns, d, e, v, sums, numbers, taus)
                if given.with_vectors:
                    product_of_columns(a, rows, columns, u, columns, columns, v, sums, taus)
                    product_of_rows(a, columns, w, v, sums, taus, columns)
                    transpose(u, a, rows, columns)
                    transpose(w, wt, columns, columns)
                height, width = (rows, columns) if given.with_vectors else (0, 0)
                converged = _make_diagonal(d, e, columns, a, height, wt, width, numbers, tolerance)
            if converged == 0:
                fill_nan(values, columns)
                if given.with_vectors:
                    fill_nan(left, rows * columns)
                    fill_nan(right, columns * columns)
                continue
            sort_order(d, order, columns, 1)
            for j in range(columns):
                values[j] = d[order[j]] / scale
            if given.with_vectors:
                put_columns(a, order, left, rows, columns)
                put_columns(wt, order, right, columns, columns)

    return Codelet(factorize, f"singular_values_{element_type}")


def singular_values_scratch_bytes(rows: int, columns: int, element_type: str) -> int:
    """The bytes of scratch for matrices of these sizes."""
    high, low = max(rows, columns), min(rows, columns)
    elements = NUMBERS + high + 3 * low + 2 * (high + low) * low
    return 24 * low + elements * ITEM_BYTES[element_type]
