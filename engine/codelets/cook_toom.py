"""Matrices of Winograd's minimal convolutions F(m, r), by Cook and Toom's evaluation at points, as exact fractions.

m outputs y of r taps g over n = m + r - 1 inputs d are A'[(G g) * (B' d)]: n products in place of m r.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

Matrix = tuple[tuple[Fraction, ...], ...]
POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2")))
"""Finite points; the last one is infinity. Of those tried for n = 7 these had the least errors."""
IDENTITY: Matrix = ((Fraction(1),),)
"""Along a dimension that is not transformed."""


def _product(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
    """The product of two polynomials, by ascending coefficients."""
    made = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            made[i + j] += x * y
    return made


def _vanishing(points: list[Fraction]) -> list[Fraction]:
    """The polynomial with these zeros."""
    made = [Fraction(1)]
    for point in points:
        made = _product(made, [-point, Fraction(1)])
    return made


@cache
def of_inputs(side: int) -> Matrix:
    """B' [side, side]."""
    points = list(POINTS[: side - 1])
    rows = [[*_vanishing([other for other in points if other != point]), Fraction(0)] for point in points]
    return tuple(map(tuple, [*rows, _vanishing(points)]))


@cache
def of_taps(side: int, taps: int) -> Matrix:
    """G [side, taps]."""
    rows = []
    for point in POINTS[: side - 1]:
        scale = Fraction(1)
        for other in POINTS[: side - 1]:
            scale *= point - other if other != point else 1
        rows.append(tuple(point**i / scale for i in range(taps)))
    return (*rows, _infinite(taps))


@cache
def of_products(side: int, outputs: int) -> Matrix:
    """A' [outputs, side]."""
    return transposed((*(tuple(p**i for i in range(outputs)) for p in POINTS[: side - 1]), _infinite(outputs)))


def _infinite(count: int) -> tuple[Fraction, ...]:
    """The highest of `count` coefficients."""
    return tuple(Fraction(int(i == count - 1)) for i in range(count))


def transposed(matrix: Matrix) -> Matrix:
    """The transpose of a matrix."""
    return tuple(zip(*matrix, strict=True))
