"""Householder reflections H = I - tau v v^T and rotations of rows, of float32 or float64; long loops run along rows.

`numbers` holds tau and beta, the first element of a reflected vector, in the matrix's type, so that products with them
are not computed in float64. `v` and `sums` are space for a vector each.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from engine.codelets.factors.matrices import Pointer, set_identity
from engine.codelets.language.build import inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lanes import F32, Lanes
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()
TAU, BETA = 0, 1
NUMBERS = 8
LEAST_SQUARE = 1e-270
"""A vector with a smaller squared length counts as zero: the largest element is far larger, and squares are inexact."""
TOLERANCES = {"f32": 2.0**-30, "f64": 2.0**-53}
"""Entries below this multiple of others count as zero where a matrix is made diagonal."""


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
def largest_row(diagonal: Pointer, beside: Pointer, size: int) -> float:
    """The largest sum of the magnitudes of an entry of the diagonal and the one beside it."""
    largest = 0.0
    for i in range(size):
        value = abs(diagonal[i]) + abs(beside[i])
        if value > largest:
            largest = value
    return largest


@inner
def reflect_by_column(
    a: Pointer, k: int, rows: int, columns: int, v: Pointer, sums: Pointer, numbers: Pointer, taus: Pointer
) -> Any:
    """Makes column k zero below the diagonal, where its reflection stays; returns the diagonal's element."""
    for i in range(k, rows):
        v[i - k] = a[i * columns + k]
    make_reflection(v, rows - k, numbers)
    taus[k] = numbers[TAU]
    reflect_rows(a, k * columns + k + 1, columns, rows - k, columns - k - 1, v, sums, numbers[TAU])
    for i in range(k + 1, rows):
        a[i * columns + k] = v[i - k]
    return numbers[BETA]


@inner
def reflection_of_row(a: Pointer, at: int, size: int, v: Pointer, numbers: Pointer) -> None:
    """Makes a reflection of the elements of a row from element `at` on, where it stays."""
    for j in range(size):
        v[j] = a[at + j]
    make_reflection(v, size, numbers)
    for j in range(size):
        a[at + j] = v[j]


@inner
def product_of_columns(
    a: Pointer, rows: int, columns: int, q: Pointer, width: int, count: int, v: Pointer, sums: Pointer, taus: Pointer
) -> None:
    """Multiplies `count` reflections that are below the diagonal of `a`: q is [rows, width]."""
    set_identity(q, rows, width)
    for step in range(count):
        k = count - 1 - step
        v[0] = 1
        for i in range(k + 1, rows):
            v[i - k] = a[i * columns + k]
        reflect_rows(q, k * width + k, width, rows - k, width - k, v, sums, taus[k])


@inner
def product_of_rows(a: Pointer, size: int, q: Pointer, v: Pointer, sums: Pointer, taus: Pointer, first: int) -> None:
    """Multiplies the reflections right of the diagonal of `a`, whose taus begin with number `first`: q is square."""
    set_identity(q, size, size)
    for step in range(size - 1):
        k = size - 2 - step
        rest, at = size - k - 1, k * size + k + 1
        for j in range(rest):
            v[j] = a[at + j]
        reflect_rows(q, at + size, size, rest, rest, v, sums, taus[first + k])
