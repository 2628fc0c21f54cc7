"""HLO fft along one dimension: complex to complex, real to half a spectrum, half a spectrum to real; any length.

Everything is computed in f64. A length with small prime factors goes through Stockham's passes, one for each
factor, without reordering. Any other becomes, by Bluestein's formula, a convolution of a power of two's length.

Tables (complex128): the roots exp(-2 pi i k / transformed); for Bluestein then the chirp exp(-pi i k^2 / length) and
the spectrum of its conjugate divided by `transformed`. Unit: some lines. Strides are in bytes; `outer` and `inner`
index the lines by the dimensions before and after the transformed one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from engine.codelets.build import Codelet, inner
from engine.codelets.memory import pointer
from engine.codelets.record import Address, Record
from engine.codelets.rows import word
from engine.machine_code.abi import RESERVED_SCRATCH

COMPLEX, REAL, HALF = range(3)
"""Kinds of lines: complex numbers, real numbers, or the first half (and one) of a spectrum whose rest mirrors it."""
LARGEST_FACTOR = 31
"""The largest prime factor with a pass of its own, whose time is quadratic in it. Chosen by hand."""
Pointer = Any  # the result of `pointer`: Numba indexes it like an array


class Fourier(Record):
    """The header of the parameters; the factors of `transformed` follow."""

    source: Address = 0
    target: Address = 0
    table: Address = 0
    length: int
    transformed: int  # the length, or Bluestein's power of two
    source_kind: int
    target_kind: int
    inverse: int
    source_stride: int
    source_outer: int
    source_inner: int
    target_stride: int
    target_outer: int
    target_inner: int
    inner: int
    lines: int
    lines_in_unit: int
    factors: int  # their number


@inner
def _pass_of_two(x: Pointer, y: Pointer, roots: Pointer, rest: int, stride: int) -> None:
    for p in range(rest):
        twiddle = roots[stride * p]
        for q in range(stride):
            a, b = x[q + stride * p], x[q + stride * (p + rest)]
            y[q + stride * 2 * p] = a + b
            y[q + stride * (2 * p + 1)] = (a - b) * twiddle


@inner
def _pass_of_four(x: Pointer, y: Pointer, roots: Pointer, rest: int, stride: int) -> None:
    for p in range(rest):
        first, second, third = roots[stride * p], roots[2 * stride * p], roots[3 * stride * p]
        for q in range(stride):
            at = q + stride * p
            a, b = x[at], x[at + stride * rest]
            c, d = x[at + 2 * stride * rest], x[at + 3 * stride * rest]
            even, odd, difference = a + c, b + d, a - c
            rotated = complex(b.imag - d.imag, d.real - b.real)  # -i (b - d)
            at = q + stride * 4 * p
            y[at] = even + odd
            y[at + stride] = (difference + rotated) * first
            y[at + 2 * stride] = (even - odd) * second
            y[at + 3 * stride] = (difference - rotated) * third


@inner
def _pass_of_any(x: Pointer, y: Pointer, roots: Pointer, rest: int, stride: int, factor: int) -> None:
    step = rest * stride  # from one root of order `factor` to the next
    for p in range(rest):
        for j in range(factor):
            twiddle = roots[stride * p * j]
            for q in range(stride):
                total = x[q + stride * p]
                for k in range(1, factor):
                    total += x[q + stride * (p + rest * k)] * roots[step * (j * k % factor)]
                y[q + stride * (factor * p + j)] = total * twiddle


@inner
def _transform(parameters: int, x: int, y: int, roots: Pointer) -> int:
    """The spectrum of the numbers at x; y is a buffer of the same size. Returns the one that holds it: x or y."""
    rest, stride = word(parameters, Fourier.TRANSFORMED), 1
    for number in range(word(parameters, Fourier.FACTORS)):
        factor = word(parameters, Fourier.WORDS + number)
        rest //= factor
        source, target = pointer(x, "complex128"), pointer(y, "complex128")
        if factor == 4:
            _pass_of_four(source, target, roots, rest, stride)
        elif factor == 2:
            _pass_of_two(source, target, roots, rest, stride)
        else:
            _pass_of_any(source, target, roots, rest, stride, factor)
        stride *= factor
        x, y = y, x
    return x


@inner
def _spectrum(parameters: int, x: int, y: int) -> int:
    """The spectrum of `length` numbers at x. Returns its address: x or y."""
    length, transformed = word(parameters, Fourier.LENGTH), word(parameters, Fourier.TRANSFORMED)
    table = word(parameters, Fourier.TABLE)
    roots = pointer(table, "complex128")
    if transformed == length:
        return _transform(parameters, x, y, roots)
    chirp = pointer(table + 16 * transformed, "complex128")
    kernel = pointer(table + 16 * (transformed + length), "complex128")
    values = pointer(x, "complex128")
    for k in range(length):
        values[k] *= chirp[k]
    for k in range(length, transformed):
        values[k] = 0
    there = _transform(parameters, x, y, roots)
    values = pointer(there, "complex128")
    for k in range(transformed):
        values[k] = (values[k] * kernel[k]).conjugate()
    back = _transform(parameters, there, x if there == y else y, roots)
    values = pointer(back, "complex128")
    for k in range(length):
        values[k] = values[k].conjugate() * chirp[k]
    return back


@cache
def fourier(element_type: str) -> Codelet:
    """The codelet whose complex lines are c64 (and real ones f32) or c128 (and f64)."""
    complex_name, real_name = ("complex64", "float32") if element_type == "c64" else ("complex128", "float64")

    @inner
    def load(parameters: int, source: int, x: int) -> None:
        length, kind = word(parameters, Fourier.LENGTH), word(parameters, Fourier.SOURCE_KIND)
        stride, values = word(parameters, Fourier.SOURCE_STRIDE), pointer(x, "complex128")
        if kind == REAL:
            for k in range(length):
                values[k] = pointer(source + k * stride, real_name)[0]
        else:
            given = length if kind == COMPLEX else length // 2 + 1
            for k in range(given):
                values[k] = pointer(source + k * stride, complex_name)[0]
            for k in range(given, length):
                values[k] = values[length - k].conjugate()
        if word(parameters, Fourier.INVERSE):
            for k in range(length):
                values[k] = values[k].conjugate()

    @inner
    def store(parameters: int, target: int, x: int) -> None:
        length, kind = word(parameters, Fourier.LENGTH), word(parameters, Fourier.TARGET_KIND)
        stride, values = word(parameters, Fourier.TARGET_STRIDE), pointer(x, "complex128")
        if word(parameters, Fourier.INVERSE):
            for k in range(length):
                values[k] = values[k].conjugate() / length
        if kind == REAL:
            for k in range(length):
                pointer(target + k * stride, real_name)[0] = values[k].real
        else:
            for k in range(length if kind == COMPLEX else length // 2 + 1):
                pointer(target + k * stride, complex_name)[0] = values[k]

    def transform_lines(parameters: int, lo: int, hi: int, scratch: int) -> None:
        x = scratch + RESERVED_SCRATCH
        y = x + 16 * word(parameters, Fourier.TRANSFORMED)
        lines = word(parameters, Fourier.LINES_IN_UNIT)
        columns = word(parameters, Fourier.INNER)
        for line in range(lo * lines, min(hi * lines, word(parameters, Fourier.LINES))):
            i, j = line // columns, line % columns
            source = i * word(parameters, Fourier.SOURCE_OUTER) + j * word(parameters, Fourier.SOURCE_INNER)
            target = i * word(parameters, Fourier.TARGET_OUTER) + j * word(parameters, Fourier.TARGET_INNER)
            load(parameters, word(parameters, Fourier.SOURCE) + source, x)
            store(parameters, word(parameters, Fourier.TARGET) + target, _spectrum(parameters, x, y))

    return Codelet(transform_lines, f"fourier_{element_type}")


def fourier_scratch_bytes(length: int) -> int:
    """The bytes of scratch for lines of `length` elements."""
    return 2 * 16 * fourier_plan(length)[0]


@cache
def fourier_plan(length: int) -> tuple[int, tuple[int, ...]]:
    """The length that is transformed, and its factors: fours, at most one two, then other primes."""
    rest, factors = length, []
    for factor in (4, 2, *range(3, LARGEST_FACTOR + 1, 2)):
        while rest % factor == 0:
            rest //= factor
            factors.append(factor)
    if rest == 1:
        return length, tuple(factors)
    return fourier_plan(1 << (2 * length - 2).bit_length())


def fourier_table(length: int) -> np.ndarray:
    """The table of a length: complex128 [n]."""
    transformed, _ = fourier_plan(length)
    roots = _roots(transformed, np.arange(transformed))
    if transformed == length:
        return roots
    k = np.arange(length)
    chirp = _roots(2 * length, k * k % (2 * length))
    kernel = np.zeros(transformed, np.complex128)
    kernel[:length] = kernel[-k] = chirp.conj()
    return np.concatenate([roots, chirp, np.fft.fft(kernel) / transformed])


def _roots(order: int, powers: np.ndarray) -> np.ndarray:
    """exp(-2 pi i powers / order), reduced to the first octant, where sine and cosine are exact to the last bit."""
    eighths, rest = np.divmod(8 * powers, order)
    swapped = eighths % 2 == 1
    angle = np.where(swapped, order - rest, rest) * (np.pi / (4 * order))
    cosine, sine = np.cos(angle), np.sin(angle)
    cosine, sine = np.where(swapped, sine, cosine), np.where(swapped, cosine, sine)
    quarters = np.array([1, -1j, -1, 1j])[eighths // 2 % 4]
    return (cosine - 1j * sine) * quarters
