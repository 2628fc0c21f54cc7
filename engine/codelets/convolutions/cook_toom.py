"""Matrices of Winograd's minimal convolutions F(m, r), by Cook and Toom's evaluation at points, as exact fractions.

m outputs y of r taps g over n = m + r - 1 inputs d are A'[(G g) * (B' d)]: n products in place of m r.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

Matrix = tuple[tuple[Fraction, ...], ...]
POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2")))
"""Finite points: a tile of n elements has the first n - 1, and infinity. Symmetric points take fewest operations."""
OF_SIX = tuple(map(Fraction, ("0", "5/8", "-5/8", "3/2", "-3/2")))
"""Points for n = 6: F(4 x 4, 3 x 3) has less than half of the root mean square error with them than with 1 and 2. They
are the best of the pairs of sixteenths and quarters that were tried.
"""
OF_FIVE = tuple(map(Fraction, ("1", "-1", "1/2", "-1/2")))
"""Points for n = 5: F(4 x 4, 2 x 2) has two thirds of the errors with 0, 1, -1 and 2, a third of the largest."""
IDENTITY: Matrix = ((Fraction(1),),)
"""The matrix for a dimension that is not transformed."""


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


def points(side: int) -> tuple[Fraction, ...]:
    """The finite points of tiles of `side` elements."""
    return {5: OF_FIVE, 6: OF_SIX}.get(side, POINTS[: side - 1])


@cache
def of_inputs(side: int) -> Matrix:
    """The matrix B' of inputs, [side, side]."""
    finite = list(points(side))
    rows = [[*_vanishing([other for other in finite if other != point]), Fraction(0)] for point in finite]
    return tuple(map(tuple, [*rows, _vanishing(finite)]))


@cache
def of_taps(side: int, taps: int) -> Matrix:
    """The matrix G of taps, [side, taps]."""
    rows = []
    for point in points(side):
        scale = Fraction(1)
        for other in points(side):
            scale *= point - other if other != point else 1
        rows.append(tuple(point**i / scale for i in range(taps)))
    return (*rows, _infinite(taps))


@cache
def of_products(side: int, outputs: int) -> Matrix:
    """The matrix A' of products, [outputs, side]."""
    return transposed((*(tuple(p**i for i in range(outputs)) for p in points(side)), _infinite(outputs)))


def _infinite(count: int) -> tuple[Fraction, ...]:
    """The row for the point at infinity, which is the highest of `count` coefficients."""
    return tuple(Fraction(int(i == count - 1)) for i in range(count))


def transposed(matrix: Matrix) -> Matrix:
    """The transpose of a matrix."""
    return tuple(zip(*matrix, strict=True))
