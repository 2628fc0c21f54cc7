"""Householder reflections H = I - tau v v^T and rotations of rows, of float32 or float64; long loops run along rows.

`numbers` holds tau and beta, the first element of a reflected vector, in the matrix's type, so that products with them
are not computed in float64.
"""

from __future__ import annotations

from math import nan, sqrt
from typing import Any

from engine.codelets.language.build import inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lanes import F32, Lanes
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

Pointer = Any  # the result of `pointer`: Numba indexes it like an array
NUMBA_TYPES = {"f32": "float32", "f64": "float64"}
LANES = lanes()
TAU, BETA = 0, 1
NUMBERS = 8
HUGE, TINY, STEP = 1e20, 1e-20, 2.0**60
"""A matrix whose largest element is not between TINY and HUGE is scaled by a power of STEP, because products might
overflow or vanish, those of float32 too. The power for the least float64 is finite."""
LEAST_SQUARE = 1e-270
"""A vector with a smaller squared length counts as zero: the largest element is far larger, and squares are inexact."""


@inner
def make_reflection(v: Pointer, size: int, numbers: Pointer) -> None:
    """Replaces `v` by the reflection that makes its elements zero except the first; v[0] is 1, as in LAPACK's larfg."""
    alpha, tail = v[0] * 1.0, 0.0
    for i in range(1, size):
        tail += (v[i] * 1.0) * (v[i] * 1.0)
    v[0] = 1
    if tail == 0 or alpha * alpha + tail < LEAST_SQUARE:
        numbers[TAU], numbers[BETA] = 0, alpha
        return
    beta = sqrt(alpha * alpha + tail)
    if alpha >= 0:
        beta = -beta
    scale = 1 / (alpha - beta)
    for i in range(1, size):
        v[i] = v[i] * scale
    numbers[TAU], numbers[BETA] = (beta - alpha) / beta, beta


@inner
def sum_rows(a: Pointer, at: int, pitch: int, rows: int, columns: int, v: Pointer, sums: Pointer) -> None:
    """The sum of the rows of the block [rows, columns] of `a` from element `at` on, each times its element of v."""
    for j in range(columns):
        sums[j] = 0
    i = 0
    while i + 4 <= rows:
        first, second, third, fourth = v[i], v[i + 1], v[i + 2], v[i + 3]
        row = at + i * pitch
        for j in range(columns):
            above = first * a[row + j] + second * a[row + pitch + j]
            sums[j] += above + (third * a[row + 2 * pitch + j] + fourth * a[row + 3 * pitch + j])
        i += 4
    while i < rows:
        factor, row = v[i], at + i * pitch
        for j in range(columns):
            sums[j] += factor * a[row + j]
        i += 1


@inner
def reflect_rows(a: Pointer, at: int, pitch: int, rows: int, columns: int, v: Pointer, sums: Pointer, tau: Any) -> None:
    """Multiplies the block [rows, columns] of `a` from element `at` on by H from the left."""
    if tau == 0:
        return
    sum_rows(a, at, pitch, rows, columns, v, sums)
    for k in range(rows):
        factor, row = tau * v[k], at + k * pitch
        for j in range(columns):
            a[row + j] -= factor * sums[j]


@inner
def reflect_columns(a: Pointer, at: int, pitch: int, rows: int, columns: int, v: Pointer, tau: Any) -> None:
    """Multiplies the block [rows, columns] of `a` from element `at` on by H from the right."""
    if tau == 0:
        return
    for i in range(rows):
        row = at + i * pitch
        factor = tau * dot(a, row, v, columns)
        for j in range(columns):
            a[row + j] -= factor * v[j]


@inner
def dot(a: Pointer, at: int, b: Pointer, size: int) -> Any:
    """The sum of a[at + i] * b[i], in eight parts."""
    zero = a[at] * b[0] * 0
    p, q, r, s = zero, zero, zero, zero
    t, u, v, w = zero, zero, zero, zero
    i = 0
    while i + 8 <= size:
        p += a[at + i] * b[i]
        q += a[at + i + 1] * b[i + 1]
        r += a[at + i + 2] * b[i + 2]
        s += a[at + i + 3] * b[i + 3]
        t += a[at + i + 4] * b[i + 4]
        u += a[at + i + 5] * b[i + 5]
        v += a[at + i + 6] * b[i + 6]
        w += a[at + i + 7] * b[i + 7]
        i += 8
    while i < size:
        p += a[at + i] * b[i]
        i += 1
    return ((p + t) + (q + u)) + ((r + v) + (s + w))


@intrinsic
def rotate_vectors(builder: ir.IRBuilder, a: Any, one: ir.Value, other: ir.Value, cosine: Any, sine: Any) -> None:
    """Rotates LANES elements of `a` at each of two positions, which do not overlap."""
    vectors, kind = Lanes(builder, LANES), "f32" if cosine.type == F32 else "f64"
    places = [vectors.element(a, kind, each) for each in (one, other)]
    x, y = (vectors.load(each, kind) for each in places)
    c, s = vectors.splat(cosine), vectors.splat(sine)
    vectors.store(builder.fadd(builder.fmul(c, x), builder.fmul(s, y)), places[0], kind)
    vectors.store(builder.fsub(builder.fmul(c, y), builder.fmul(s, x)), places[1], kind)


@inner
def rotate(a: Pointer, pitch: int, columns: int, i: int, j: int, cosine: float, sine: float, numbers: Pointer) -> None:
    """Rows i, j of `a` become cosine * i + sine * j and cosine * j - sine * i."""
    numbers[2], numbers[3] = cosine, sine
    c, s = numbers[2], numbers[3]
    one, other, k = i * pitch, j * pitch, 0
    while k + LANES <= columns:
        rotate_vectors(a, one + k, other + k, c, s)
        k += LANES
    while k < columns:
        x, y = a[one + k], a[other + k]
        a[one + k] = c * x + s * y
        a[other + k] = c * y - s * x
        k += 1


@inner
def set_identity(a: Pointer, rows: int, columns: int) -> None:
    """Sets the diagonal to one, and all else to zero."""
    for i in range(rows):
        for j in range(columns):
            a[i * columns + j] = 0
        if i < columns:
            a[i * columns + i] = 1


@inner
def scale_of(a: Pointer, size: int) -> float:
    """The power of two to multiply a matrix by; NaN if an element is not finite."""
    largest, check = 0.0, 0.0
    for i in range(size):
        value = abs(a[i] * 1.0)
        check += value * 0
        if value > largest:
            largest = value
    if check != 0:
        return check
    scale = 1.0
    while largest > HUGE:
        scale, largest = scale / STEP, largest / STEP
    while 0 < largest < TINY:
        scale, largest = scale * STEP, largest * STEP
    return scale


@inner
def norm(x: float, y: float) -> float:
    """The length of a vector of two elements, even if their squares vanish."""
    square = x * x + y * y
    if square > LEAST_SQUARE:
        return sqrt(square)
    longer, shorter = (abs(x), abs(y)) if abs(x) > abs(y) else (abs(y), abs(x))
    if longer == 0:
        return longer
    return longer * sqrt(1 + (shorter / longer) * (shorter / longer))


@inner
def fill_nan(a: Pointer, size: int) -> None:
    """Fills an array with NaN."""
    for i in range(size):
        a[i] = nan


@inner
def sort_order(values: Pointer, order: Pointer, size: int, descending: int) -> None:
    """Finds the order of values, by insertion."""
    for i in range(size):
        at = i
        while at > 0 and (values[order[at - 1]] < values[i] if descending else values[order[at - 1]] > values[i]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
