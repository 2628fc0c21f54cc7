"""The compute sets of Winograd's convolutions, and of gradients by their kernels.

A kernel with more taps than a tile is cut into parts, and each part reads tiles that are further on. A convolution of
stride 2 is one of stride 1 over its phases: every second input, from the first or from the second on, with every second
tap. Taps in depth read other slices of an image. Products sum over all of these parts as they sum over features.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from engine.codelets.convolutions.cook_toom import (
    GRADIENT_BLOCK,
    Axes,
    Pair,
    TileAxis,
    position_bytes,
    positions,
    tiles_of,
)
from engine.host.convolutions.images import Depth, Images, TilePart
from engine.host.convolutions.part import Axis, ConvolutionPart, estimate_of
from engine.host.convolutions.winograd_work import (
    WinogradGradient,
    WinogradKernel,
    WinogradProduct,
    WinogradSums,
    transformed_bytes,
)
from engine.host.convolutions.zero_sums import ReadTaps
from engine.ir.shape import Shape
from engine.program.buffer import Address, Buffer
from engine.program.program import ComputeSet, Span, WorkEstimate
from engine.program.work.base import MOST_UNITS
from engine.program.work.offsets import Offsets, table

GRADIENT_UNITS = 16
"""Units of a gradient: each share of the tiles has its own sums, to be added."""
SHARE_TILES = 128
"""Fewest tiles of a share."""
NEAR = 1 << 16
"""Most bytes between columns: rows outside of an image are a row of zeros in scratch."""
FEW_ROWS = 8
"""Rows of tiles of all images below which units are parts of rows."""


class Tiling(NamedTuple):
    """Tiles along rows and columns, and input positions between two outputs; `backward` is for gradients by kernels."""

    axes: Axes
    steps: Pair = (1, 1)
    backward: bool = False

    @property
    def name(self) -> str:
        """The minimal convolution, with the taps of a part of the kernel."""
        rows, columns = self.axes
        return f"F({rows.outputs} x {columns.outputs}, {rows.taps} x {columns.taps})"


class TapPart(NamedTuple):
    """Some taps along a dimension, -1 for those that do not exist, and what their tiles read: see `TilePart`."""

    part: int
    taps: tuple[int, ...]
    offset: int
    first: int
    size: int


def _tap_parts(axis: Axis, tile: TileAxis, step: int, taps: int) -> Iterator[TapPart]:
    """The parts of a kernel along a dimension, each in all phases."""
    for part, phase in product(range(tile.parts), range(min(step, taps))):
        first = part * tile.taps * step + phase
        numbers = tuple(tap if tap < taps else -1 for tap in range(first, first + tile.taps * step, step))
        begin, residue = divmod(phase - axis.low, step)
        size = -(-max(0, axis.size - residue) // step)
        yield TapPart(part, numbers, residue * axis.stride_a, begin, size)


class TiledTaps(NamedTuple):
    """The axes of depth, rows and columns, and the parts of the taps: a slice, and parts along rows and columns.

    Parts of the kernel follow one another, each with all slices and phases.
    """

    axes: tuple[Axis, Axis, Axis]
    taps: tuple[int, int, int]
    parts: tuple[tuple[int, TapPart, TapPart], ...]

    @classmethod
    def of(cls, part: ConvolutionPart, tiling: Tiling) -> TiledTaps:
        """Divides the taps of a part of a convolution."""
        deep, rows, columns = axes = (Axis(),) * (3 - len(part.axes)) + part.axes
        slices, *taps = [axis.count if tiling.backward else axis.taps for axis in axes]
        along = zip((rows, columns), tiling.axes, tiling.steps, taps, strict=True)
        of_rows, of_columns = (list(_tap_parts(*each)) for each in along)
        parts = sorted(product(range(slices), of_rows, of_columns), key=lambda each: (each[1].part, each[2].part))
        return cls((deep, rows, columns), (slices, taps[0], taps[1]), tuple(parts))

    @property
    def tile_parts(self) -> tuple[TilePart, ...]:
        """The elements that tiles read of each slice and phase."""
        stride = self.axes[0].stride_a
        return tuple(
            TilePart(number * stride + r.offset + c.offset, (r.first, c.first), (r.size, c.size))
            for number, r, c in self.parts
            if r.part == c.part == 0
        )

    @property
    def numbers(self) -> np.ndarray:
        """The numbers [part, tap] of taps by depth, row and column; -1 for those that do not exist."""
        _, rows, columns = self.taps
        found = [
            [(number * rows + i) * columns + j if min(i, j) >= 0 else -1 for i, j in product(r.taps, c.taps)]
            for number, r, c in self.parts
        ]
        return np.array(found)

    def is_suitable(self, positions: tuple[int, ...], columns: tuple[int, ...]) -> bool:
        """Whether there are several positions along dimensions with several taps, and inputs that exist.

        `columns` are the bytes between columns of all images.
        """
        (deep, *flat), several = self.axes, zip(self.taps[1:], positions, strict=True)
        if max(map(abs, columns)) > NEAR:
            return False
        return deep.is_inside and all(n > 1 or taps == 1 for taps, n in several) and min(a.size for a in flat) > 0


def convolution_sets(part: ConvolutionPart, tiling: Tiling) -> list[ComputeSet] | None:
    """Makes the transform of the kernel and the products by its tiles; None for unsuitable arrays."""
    tiled, (batch, inputs, outputs) = TiledTaps.of(part, tiling), (part.batch, part.inputs, part.outputs)
    deep, rows, columns = tiled.axes
    field, axes = (rows.count, columns.count), tiling.axes
    near = columns.stride_a * tiling.steps[1], columns.stride_c
    if not tiled.is_suitable(field, near) or not _has_contiguous(part, inputs.count, inputs.one):
        return None
    if not _has_even_images(batch.count, batch.other, deep.count, deep.stride_c):
        return None
    size = transformed_bytes(len(tiled.parts), inputs.count, outputs.count, axes)
    buffer = Buffer(f"{part.name}.transformed", Shape("f32", (size // 4,)))
    kernel = _kernel(part, tiled, axes, Address(buffer))
    strides = deep.stride_c if deep.count > 1 else batch.other, rows.stride_c, columns.stride_c
    images, tiles = batch.count * deep.count, tiles_of(axes, field)
    unit_rows = -(-images * tiles[0] // MOST_UNITS)
    few = images * tiles[0] < FEW_ROWS and axes[0].parts == 1
    made = WinogradProduct(
        images,
        _images_of_a(part, inputs.count, batch.one, Depth(deep.count, deep.stride_a, deep.taps)),
        Images(part.c, outputs.count, strides, field, element_type=part.element_type),
        axes,
        tiled.tile_parts,
        tiling.steps,
        Address(buffer),
        -(-images * prod(tiles) // FEW_ROWS) if few else unit_rows * tiles[1],
        ReadTaps.of(tiled.numbers, len(tiled.tile_parts), axes),
    )
    whole_rows = not few and field[0] % axes[0].outputs == 0
    partition = made.c.partition(images, axes[0].outputs * unit_rows) if whole_rows else None
    reads, writes = [Span(part.a.buffer), Span(buffer)], [Span(part.c.buffer, partition)]
    return [
        ComputeSet(buffer.name, kernel, kernel.unit_count, [Span(part.b.buffer)], [Span(buffer)], op_name=part.op_name),
        ComputeSet(part.name, made, made.unit_count, reads, writes, estimate_of(part), part.op_name),
    ]


def _kernel(part: ConvolutionPart, tiled: TiledTaps, axes: Axes, target: Address) -> WinogradKernel:
    """The transform of the kernel, with the taps in their order in memory."""
    inputs, outputs, (deep, rows, columns) = part.inputs, part.outputs, tiled.axes
    taps = table((deep.taps, deep.stride_b), (rows.taps, rows.stride_b), (columns.taps, columns.stride_b))
    order, numbers = np.argsort(taps, kind="stable"), tiled.numbers
    k_b = np.add.outer(taps[order], np.arange(inputs.count) * inputs.other)
    return WinogradKernel(
        part.b,
        target,
        Offsets(k_b.reshape(-1)),
        Offsets(np.where(numbers < 0, -1, np.argsort(order, kind="stable")[numbers]).reshape(-1)),
        inputs.count,
        outputs.count,
        outputs.one if outputs.count > 1 else part.item,
        part.element_type,
        axes,
    )


def gradient_sets(part: ConvolutionPart, tiling: Tiling) -> list[ComputeSet] | None:
    """Makes the sums over tiles and the taps of a gradient by the kernel; None for unsuitable arrays."""
    tiled, (batch, inputs, outputs) = TiledTaps.of(part, tiling), (part.batch, part.inputs, part.outputs)
    deep, rows, columns = tiled.axes
    field = rows.taps, columns.taps
    near = columns.stride_a * tiling.steps[1], columns.stride_b
    if not tiled.is_suitable(field, near) or columns.stride_a < 0:
        return None
    if not all(_has_contiguous(part, each.count, each.one) for each in (batch, outputs)):
        return None
    if not _has_even_images(inputs.count, inputs.other, deep.taps, deep.stride_b):
        return None
    strides = deep.stride_b if deep.taps > 1 else inputs.other, rows.stride_b, columns.stride_b
    gradients = Images(part.b, outputs.count, strides, field, element_type=part.element_type)
    images = _images_of_a(part, batch.count, inputs.one, Depth(deep.taps, deep.stride_a, deep.count))
    count, axes, tiles = inputs.count * deep.taps, tiling.axes, tiles_of(tiling.axes, field)
    features, all_tiles = len(tiled.parts) * batch.count, count * prod(tiles)
    wanted = max(1, min(GRADIENT_UNITS // -(-features // GRADIENT_BLOCK), all_tiles // SHARE_TILES))
    share_tiles = -(-all_tiles // wanted)
    if axes[0].parts > 1:
        share_tiles = -(-share_tiles // tiles[1]) * tiles[1]
    shares, position = -(-all_tiles // share_tiles), position_bytes(features, outputs.count)
    buffer = Buffer(f"{part.name}.sums", Shape("f32", (shares, positions(axes), position // 4)))
    made = WinogradGradient(
        count, images, gradients, axes, tiled.tile_parts, tiling.steps, Address(buffer), share_tiles
    )
    taps = table((deep.count, deep.stride_c), (rows.count, rows.stride_c), (columns.count, columns.stride_c))
    # What is stored for taps that do not exist is overwritten by the first tap.
    numbers = tiled.numbers
    kept = np.flatnonzero(numbers[:, 0] >= 0)
    first = np.where(numbers < 0, numbers[:, :1], numbers)[kept]
    added = WinogradSums(
        Address(buffer),
        part.c,
        shares,
        batch.count,
        outputs.count,
        len(numbers),
        tuple(kept.tolist()),
        Offsets(taps[first].reshape(-1)),
        batch.other,
        part.element_type,
        axes,
    )
    reads, estimate = [Span(part.a.buffer), Span(part.b.buffer)], WorkEstimate({"add": buffer.shape.elements})
    return [
        ComputeSet(part.name, made, made.unit_count, reads, [Span(buffer)], estimate_of(part), part.op_name),
        ComputeSet(buffer.name, added, added.unit_count, [Span(buffer)], [Span(part.c.buffer)], estimate, part.op_name),
    ]


def _has_contiguous(part: ConvolutionPart, count: int, stride: int) -> bool:
    """Whether features are contiguous."""
    return count == 1 or stride == part.item


def _has_even_images(images: int, stride: int, slices: int, slice_stride: int) -> bool:
    """Whether the slices of all images are evenly spaced."""
    return slices == 1 or images == 1 or stride == slices * slice_stride


def _images_of_a(part: ConvolutionPart, features: int, image: int, depth: Depth) -> Images:
    """The inputs, `image` bytes apart."""
    rows, columns = part.axes[-2:]
    if depth.slices * depth.taps == 1:
        depth = Depth()
    strides, size = (image, rows.stride_a, columns.stride_a), (rows.size, columns.size)
    return Images(part.begin, features, strides, size, depth=depth, element_type=part.element_type)
