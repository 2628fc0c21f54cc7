"""Winograd's minimal convolutions F(m, r): sizes of tiles, and matrices by Cook and Toom's evaluation at points.

The matrices have exact fractions.
m outputs y of r taps g over n = m + r - 1 inputs d are A'[(G g) * (B' d)]: n products in place of m r.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple

from engine.machine_code.processor import lanes

Pair = tuple[int, int]
"""A number along rows, and one along columns."""
KERNEL_BLOCK = 16  # input features of a unit of the kernel's transform, which has all of a panel's output features
GRADIENT_BLOCK = 16  # input features of a unit of the kernel's gradient
PADDING = 64  # bytes between arrays of scratch: without it, the arrays of all positions would share cache sets
# Tuned on two cores of an EPYC with AVX-512 (32 KiB first-level, 1 MiB second-level cache), November 2026.
BLOCK_BYTES = 7 << 15  # transformed inputs and products of the tiles multiplied at a time
LEAST_TILES = 24  # multiplied at a time, in any cache: the transformed kernel is read once for each block of tiles
MOST_TILES = 48
LARGE_KERNEL = 1 << 24  # bytes of a transformed kernel from which at least MOST_TILES are: it is read from memory
LEAST_GRADIENT_TILES = 36  # likewise for the kernel's gradient: its sums are read and written once for each block


def whole_vectors(features: int) -> int:
    """Features rounded up to whole vectors of this processor."""
    return -(-features // lanes()) * lanes()


class TileAxis(NamedTuple):
    """Tiles along a dimension, `outputs` outputs each; the kernel has `parts` parts of `taps` taps, padded with zeros.

    Part s of the kernel reads the inputs of the tile that is s tiles after an output's. With more than one part, there
    are as many taps as outputs.
    """

    outputs: int = 1
    taps: int = 1
    parts: int = 1

    @property
    def side(self) -> int:
        """Elements of a transformed tile."""
        return self.outputs + self.taps - 1

    @property
    def name(self) -> str:
        """Name of the tile sizes, on which the transforms depend."""
        return f"{self.outputs}x{self.taps}"


Axes = tuple[TileAxis, TileAxis]
"""Tiles along rows, and along columns."""
SMALL: Axes = (TileAxis(2, 3), TileAxis(2, 3))
LARGE: Axes = (TileAxis(4, 3), TileAxis(4, 3))


def positions(axes: Axes) -> int:
    """Positions of a transformed tile."""
    return axes[0].side * axes[1].side


def tiles_of(axes: Axes, field: Pair) -> Pair:
    """The tiles that cover a field of outputs."""
    return -(-field[0] // axes[0].outputs), -(-field[1] // axes[1].outputs)


def taps_of(axes: Axes) -> int:
    """Taps of a part of the kernel."""
    return axes[0].taps * axes[1].taps


def block_tiles(inputs: int, outputs: int, axes: Axes, least: int = LEAST_TILES) -> int:
    """Number of tiles that are transformed and multiplied at a time, for `inputs` and `outputs` features."""
    size = 4 * positions(axes) * (whole_vectors(inputs) + whole_vectors(outputs))
    return max(least, min(MOST_TILES, BLOCK_BYTES // size // 12 * 12))


def position_bytes(inputs: int, outputs: int) -> int:
    """Bytes of one position of a transformed kernel."""
    return 4 * inputs * whole_vectors(outputs) + PADDING


FEW_TAPS = {
    1: (TileAxis(),),
    2: (TileAxis(4, 2), TileAxis(3, 2), TileAxis(2, 2)),
    3: (TileAxis(4, 3),),
    4: (TileAxis(4, 4),),
    5: (TileAxis(3, 5),),
}
"""Tiles by taps. Transformed tiles have six or seven elements, or up to five with two taps, so that few outputs are
outside of small images. Errors grow with tiles, and smaller tiles took longer. Five outputs of three taps would take as
long as four."""
PART = TileAxis(4, 4)
"""The axis for kernels with more taps."""


def axes_of(taps: int) -> tuple[TileAxis, ...]:
    """The tiles to choose from along a dimension with `taps` taps."""
    found = FEW_TAPS.get(taps)
    return (TileAxis(PART.outputs, PART.taps, -(-taps // PART.taps)),) if found is None else found


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


@cache
def keeps_zeros(axis: TileAxis) -> bool:
    """Whether sums of zeros are 0: an output's products are of transformed inputs that mix only what its taps read."""
    if axis.side == 1:
        return True
    reads = [[place for place, each in enumerate(row) if each] for row in of_inputs(axis.side)]
    return all(
        output <= place < output + axis.taps
        for output, row in enumerate(of_products(axis.side, axis.outputs))
        for position, each in enumerate(row)
        for place in (reads[position] if each else ())
    )


class Transform(NamedTuple):
    """The transform of a block of vectors along its columns, then along its rows."""

    name: str
    rows: Matrix
    columns: Matrix
    outputs: Pair
    """Rows and columns of outputs of a tile."""


def transform_of(kind: str, axes: Axes) -> Transform:
    """The transform of tiles of a kind that `matrix_of` takes."""
    rows, columns = axes
    name = f"winograd_{kind}_{rows.name}_{columns.name}"
    return Transform(name, matrix_of(rows, kind), matrix_of(columns, kind), (rows.outputs, columns.outputs))


def matrix_of(axis: TileAxis, kind: str) -> Matrix:
    """The matrix of a transform along a dimension.

    `kind`: "inputs" (B'), "taps" (G), "products" (A'), "gradients" (A) or "sums" (G').
    """
    if axis.side == 1:
        return IDENTITY
    if kind == "inputs":
        return of_inputs(axis.side)
    if kind in ("taps", "sums"):
        taps = of_taps(axis.side, axis.taps)
        return taps if kind == "taps" else transposed(taps)
    products = of_products(axis.side, axis.outputs)
    return products if kind == "products" else transposed(products)
