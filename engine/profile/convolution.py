"""Convolutions on the chip: the block that a tile computes and the bytes it receives, for many partitions at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from engine.frozen import frozen
from engine.profile.matrix_engine import item_bytes
from engine.program.convolution_size import ConvolutionSize


@frozen
class PlannedConvolution:
    """A convolution to be planned, with inputs "f32" or "f16"; a is its input, b its kernel.

    `resident` and `transposed` are those of engine.profile.matmul.Product. `reuse_a` and `reuse_b` are the fractions of
    the operands' elements that are distinct, where these do not follow from the sizes.
    """

    size: ConvolutionSize
    element_type: str
    resident: str = ""
    transposed: str = ""
    reuse_a: float = 1.0
    reuse_b: float = 1.0

    @property
    def rows(self) -> int:
        """Number of output positions of all images."""
        return self.size.batch * prod(self.size.field)

    @property
    def k(self) -> int:
        """Number of terms of each sum."""
        return self.size.inputs * prod(self.size.taps)

    @property
    def sums_positions(self) -> bool:
        """True if sums have more terms of positions than there are results of them, as in a kernel's gradient."""
        return prod(self.size.taps) > prod(self.size.field)

    @property
    def multiply_adds(self) -> int:
        return self.size.groups * self.rows * self.size.outputs * self.k

    def halved(self) -> PlannedConvolution:
        """The convolution with half its output features, or with half its images or field if it has more rows."""
        size = self.size
        if size.outputs >= self.rows:
            return replace(self, size=replace(size, outputs=-(-size.outputs // 2)))
        if size.batch > 1:
            return replace(self, size=replace(size, batch=-(-size.batch // 2)))
        at = int(np.argmax(size.field))
        field = tuple(-(-f // 2) if d == at else f for d, f in enumerate(size.field))
        return replace(self, size=replace(size, field=field))


@frozen
class Cuts:
    """Number of blocks of groups, output positions, output features and terms: int64 arrays of one length."""

    groups: np.ndarray
    rows: np.ndarray
    outputs: np.ndarray
    k: np.ndarray

    @property
    def axes(self) -> tuple[np.ndarray, ...]:
        return self.groups, self.rows, self.outputs, self.k

    @property
    def tiles(self) -> np.ndarray:
        return product(self.axes)


@frozen
class TileShares:
    """The largest block of a tile for each partition, as int64 arrays; `field` and `taps` are by dimension."""

    groups: np.ndarray
    batch: np.ndarray
    field: tuple[np.ndarray, ...]
    inputs: np.ndarray
    outputs: np.ndarray
    taps: tuple[np.ndarray, ...]

    @property
    def rows(self) -> np.ndarray:
        return product([self.batch, *self.field])

    @property
    def results(self) -> np.ndarray:
        """Number of output elements."""
        return self.groups * self.rows * self.outputs

    @property
    def kernel(self) -> np.ndarray:
        """Number of kernel elements."""
        return self.groups * self.outputs * self.inputs * product(self.taps, like=self.inputs)

    def source(self, size: ConvolutionSize, folded: Sequence[int] = ()) -> np.ndarray:
        """Elements of the input that the block reads, with halos: of each position along `folded` dimensions."""
        found = self.groups * self.batch * self.inputs
        for d, source in enumerate(size.sources):
            found = found * (self.field[d] * self.taps[d] if d in folded else self.extent(size, d, source))
        return found

    def extent(self, size: ConvolutionSize, dimension: int, most: int) -> np.ndarray:
        """Positions of the input along a dimension from the first to the last that the block reads, int64."""
        step, dilation = size.steps[dimension], size.dilations[dimension]
        reach = (self.field[dimension] - 1) * step + (self.taps[dimension] - 1) * dilation + 1
        return np.minimum(np.ceil(reach), most).astype(np.int64)


def blocks(convolution: PlannedConvolution, cuts: Cuts, taps_first: bool, runs_divided: bool = False) -> TileShares:
    """Divide images before the field, and input features before taps or, with `taps_first`, after them.

    Taps of the last dimension are divided with `runs_divided` only, where they are folded into input features: poplin
    does not split "the innermost kernel dimension".
    """
    size = convolution.size
    batch, *field = _cut([size.batch, *size.field], cuts.rows)
    divided = len(size.taps) - (not runs_divided)
    if taps_first:
        *taps, inputs = _cut([*size.taps[:divided], size.inputs], cuts.k)
    else:
        inputs, *taps = _cut([size.inputs, *size.taps[:divided]], cuts.k)
    taps += [np.full_like(inputs, extent) for extent in size.taps[divided:]]
    groups, outputs = -(-size.groups // cuts.groups), -(-size.outputs // cuts.outputs)
    return TileShares(groups, batch, tuple(field), inputs, outputs, tuple(taps))


def foldings(taps: Sequence[int]) -> list[tuple[int, ...]]:
    """The sets of spatial dimensions whose taps may be folded into input features: the first few, or the last few."""
    several = [d for d, extent in enumerate(taps) if extent > 1]
    found = [tuple(several[:n]) for n in range(len(several) + 1)]
    return found + [tuple(several[n:]) for n in range(1, len(several))]


def received(
    convolution: PlannedConvolution, blocks: TileShares, cuts: Cuts, folded: Sequence[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes (int64) of input and kernel that a tile's block needs from other tiles.

    The tiles that share a block of a resident operand each hold a part of it. Along `folded` dimensions each output
    position comes with the inputs of all its taps.
    """
    item = item_bytes(convolution.element_type)
    a = blocks.source(convolution.size, folded) * convolution.reuse_a
    b = blocks.kernel * convolution.reuse_b
    if convolution.resident == "a":
        a = a * (1 - 1 / cuts.outputs)
    if convolution.resident == "b":
        b = b * (1 - 1 / cuts.rows)
    return np.ceil(a).astype(np.int64) * item, np.ceil(b).astype(np.int64) * item


def product(factors: Sequence[np.ndarray], like: np.ndarray | None = None) -> np.ndarray:
    """The product of arrays; ones of the shape of `like` if there are none."""
    found = np.ones_like(like if like is not None else factors[0])
    for factor in factors:
        found = found * factor
    return found


def _cut(extents: Sequence[int], cuts: np.ndarray) -> list[np.ndarray]:
    """The block of each extent: `cuts` go to the first extent, and those that it cannot take to the next."""
    found, left = [], cuts
    for extent in extents:
        block = -(-extent // np.minimum(left, max(1, extent)))
        found.append(np.maximum(block, 1))
        left = np.maximum(left // np.maximum(-(-extent // np.maximum(block, 1)), 1), 1)
    return found
