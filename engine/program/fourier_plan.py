"""Plans of Fourier transforms of a length: radices of the passes, and the numbers of their tables.

A length with small prime factors goes through Stockham's passes, one for each factor, without reordering, in the type
of its numbers. Any other becomes, by Bluestein's formula, a convolution of a power of two's length, in f64.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

LARGEST_FACTOR = 13
"""The largest prime factor with a butterfly, whose time and code are quadratic in it."""
COMPLEX, REAL, HALF = range(3)
"""Kinds of lines: complex numbers, real numbers, or the first half (and one) of a spectrum whose rest mirrors it."""
PLAIN, TANGLED, UNTANGLED = range(3)
"""Packing of real lines as pairs: none, or the half spectrum is taken apart before, or put together after."""


class FourierPlan(NamedTuple):
    """The transform of lines of `length` complex numbers, or of pairs of real ones."""

    length: int
    transformed: int  # the length, or Bluestein's power of two
    radices: tuple[int, ...]
    packing: int
    computed: str  # element type, f32 or f64

    @property
    def is_bluestein(self) -> bool:
        return self.transformed != self.length


def fourier_plan(length: int, ends: tuple[int, int], element_type: str) -> FourierPlan:
    """The plan of lines of `length` numbers of the element type c64 or c128, without radix 8."""
    packing = PLAIN
    if length % 2 == 0 and ends != (COMPLEX, COMPLEX):
        length, packing = length // 2, UNTANGLED if ends[0] == REAL else TANGLED
    transformed, radices = length, radices_of(length)
    if radices is None:
        transformed = 1 << (2 * length - 2).bit_length()
        radices = radices_of(transformed)
        assert radices is not None
    computed = "f32" if element_type == "c64" and transformed == length else "f64"
    return FourierPlan(length, transformed, radices, packing, computed)


@cache
def radices_of(length: int, with_eights: bool = False) -> tuple[int, ...] | None:
    """The factors of a length, each a radix; None if a prime is too large."""
    rest, factors = length, []
    for factor in range(3, LARGEST_FACTOR + 1, 2):
        while rest % factor == 0:
            rest //= factor
            factors.append(factor)
    twos = rest.bit_length() - 1
    if rest != 1 << twos:
        return None
    eights, left = divmod(twos, 3) if with_eights else (0, twos)
    if left == 1 and eights:
        eights, left = eights - 1, 4
    return tuple([8] * eights + [4] * (left // 2) + [2] * (left % 2) + factors)


@cache
def fourier_table(plan: FourierPlan) -> np.ndarray:
    """The plan's numbers, f32 or f64: roots of the passes, then Bluestein's two tables, then roots of a half spectrum.

    Bluestein's are the chirp exp(-pi i k^2 / length), and the spectrum of its conjugate divided by `transformed`. The
    last number is 1 / length, or half of that for a half spectrum that is taken apart.
    """
    parts = [*_pass_roots(plan)]
    if plan.is_bluestein:
        k = np.arange(plan.length)
        chirp = roots(2 * plan.length, k * k % (2 * plan.length))
        kernel = np.zeros(plan.transformed, np.complex128)
        kernel[: plan.length] = kernel[-k] = chirp.conj()
        parts += [chirp, np.fft.fft(kernel) / plan.transformed]
    if plan.packing != PLAIN:
        parts.append(roots(2 * plan.length, np.arange(plan.length // 2 + 1)))
    numbers = np.concatenate([part.reshape(-1).view(np.float64) for part in parts]) if parts else np.zeros(0)
    scale = 1 / plan.length / (2 if plan.packing == TANGLED else 1)
    return np.append(numbers, scale).astype(np.float32 if plan.computed == "f32" else np.float64)


def table_places(plan: FourierPlan) -> tuple[int, int, int, int]:
    """Offsets into the table, in bytes: of the chirp, its spectrum, the half spectrum's roots, and the scale."""
    item = 4 if plan.computed == "f32" else 8
    chirp = sum(part.size for part in _pass_roots(plan))
    kernel = chirp + (plan.length if plan.is_bluestein else 0)
    half = kernel + (plan.transformed if plan.is_bluestein else 0)
    end = half + (plan.length // 2 + 1 if plan.packing != PLAIN else 0)
    return 2 * item * chirp, 2 * item * kernel, 2 * item * half, 2 * item * end


def _pass_roots(plan: FourierPlan) -> list[np.ndarray]:
    """Roots of each pass, [p, j], for 0 < p < rest and 0 < j < radix."""
    rest, stride, found = plan.transformed, 1, []
    for radix in plan.radices:
        rest //= radix
        found.append(roots(plan.transformed, stride * np.outer(np.arange(1, rest), np.arange(1, radix))))
        stride *= radix
    return found


def roots(order: int, powers: np.ndarray) -> np.ndarray:
    """exp(-2 pi i powers / order), reduced to the first octant, where sine and cosine are exact to the last bit."""
    eighths, rest = np.divmod(8 * powers, order)
    swapped = eighths % 2 == 1
    angle = np.where(swapped, order - rest, rest) * (np.pi / (4 * order))
    cosine, sine = np.cos(angle), np.sin(angle)
    cosine, sine = np.where(swapped, sine, cosine), np.where(swapped, cosine, sine)
    quarters = np.array([1, -1j, -1, 1j])[eighths // 2 % 4]
    return (cosine - 1j * sine) * quarters
