"""Work of convolutions, and gradients by their kernels, by Winograd's F(2 x 2, 3 x 3) or F(4 x 4, 3 x 3).

The tiles of Winograd's convolutions: where they are in the two arrays of images that they connect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from engine.codelets.convolutions.cook_toom import (
    GRADIENT_BLOCK,
    KERNEL_BLOCK,
    LEAST_GRADIENT_TILES,
    OUTPUTS,
    PADDING,
    ROW_WORDS,
    TAPS,
    block_tiles,
    position_bytes,
    positions,
    side,
    whole_vectors,
)
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.products.contract_fields import right_operand
from engine.codelets.products.micro_kernel import panel_columns
from engine.ir.shape import Shape
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.processor import lanes
from engine.program.buffer import Address
from engine.program.program import Partition
from engine.program.work.base import Addressed, Footprint
from engine.program.work.offsets import Offsets

Strides = tuple[int, int, int]
"""Bytes between images, rows and columns."""


class Depth(NamedTuple):
    """Slices of outputs of an image with depth, bytes between slices of inputs, and slices that an output reads."""

    slices: int = 1
    stride: int = 0
    taps: int = 1


@dataclass(frozen=True, slots=True)
class Images(Addressed):
    """Images of contiguous features; in images with `depth`, each slice of outputs counts as an image.

    `low` is the padding with zeros before the first row and column.
    """

    address: Address
    features: int
    strides: Strides
    size: tuple[int, int]
    low: tuple[int, int] = (0, 0)
    depth: Depth = Depth()
    element_type: str = "f32"

    def footprint(self, images: int, writes: bool) -> Footprint:
        """The bytes from the first to the last element."""
        counts = images // self.depth.slices, *self.size
        last = [(count - 1) * stride for count, stride in zip(counts, self.strides, strict=True)]
        last.append((self.depth.slices + self.depth.taps - 2) * self.depth.stride)
        begin, end = sum(min(0, each) for each in last), sum(max(0, each) for each in last)
        return Footprint(self.address, begin, end + self.column_bytes // self.depth.taps, writes)

    @property
    def column_bytes(self) -> int:
        """Bytes of the features of a column."""
        return Shape(self.element_type).dtype.itemsize * self.features

    def partition(self, images: int, unit_rows: int) -> Partition | None:
        """The elements that each unit of rows, counted through all images, writes; None unless images are dense."""
        (image, *inside), (rows, columns) = self.strides, self.size
        row, elements = self.column_bytes * columns, self.features * columns
        dense = inside == [row, self.column_bytes] and (image == rows * row or images == 1)
        whole = self.address.buffer.shape.elements == images * rows * elements
        return Partition(elements, images * rows, unit_rows) if dense and whole else None


def tile_fields(work: WinogradTiles, block: int, layout: ScratchLayout) -> dict[str, Any]:
    """Fields of `Tiles` for blocks of `block` tiles; adds their areas to the layout of scratch."""
    inputs, outputs, tile, (rows, columns) = work.a, work.c, work.tile, work.tiles
    vector = 4 * lanes() * block
    position = whole_vectors(inputs.features) // lanes() * vector + PADDING
    return {
        "a": inputs.address,
        "c": outputs.address,
        "features": inputs.features,
        "outputs": outputs.features,
        "tiles": work.images * rows * columns,
        "image_rows": rows,
        "row_tiles": columns,
        **dict(zip(("image_a", "row_a", "column_a"), inputs.strides, strict=True)),
        **dict(zip(("slices", "slice_a", "depth"), inputs.depth, strict=True)),
        **dict(zip(("image_c", "row_c", "column_c"), outputs.strides, strict=True)),
        **dict(zip(("rows_a", "columns_a"), inputs.size, strict=True)),
        **dict(zip(("rows_c", "columns_c"), outputs.size, strict=True)),
        "first_row": -inputs.low[0],
        "first_column": -inputs.low[1],
        "block_tiles": block,
        "position_a": position,
        "vector_a": vector,
        "rows": layout.after_words(8 * ROW_WORDS * side(tile)),
        "zeros": layout.after_words(4 * whole_vectors(max(inputs.features, outputs.features))),
        "inputs_at": layout.after_words(positions(tile) * position),
    }


@dataclass(frozen=True, slots=True)
class WinogradKernel(HostWork):
    """Transforms a kernel, whose elements have the byte offsets `k_b` [tap, input feature].

    `columns` is the number of output features, and `stride_b` the bytes between them. `taps` are the
    numbers of the taps by row and column of the window. Tiles have `tile` outputs along each side.
    """

    is_plain: ClassVar[bool] = True

    kernel: Address
    transformed: Address
    k_b: Offsets
    taps: tuple[int, ...]
    columns: int
    stride_b: int
    element_type: str = "f32"
    tile: int = OUTPUTS

    @property
    def features(self) -> int:
        """The number of input features."""
        return len(self.k_b) // TAPS

    @property
    def unit_count(self) -> int:
        return -(-self.columns // panel_columns()) * -(-self.features // KERNEL_BLOCK)

    def encode(self) -> Encoded:
        """The fields of B, then those of the transform."""
        from engine.codelets.convolutions.winograd import TAP_BYTES, Kernel, kernel_scratch, kernel_transform

        item = Shape(self.element_type).dtype.itemsize
        parameters = Kernel(
            **vars(right_operand(self.kernel, self.k_b, self.columns, self.stride_b, item)),
            transformed=self.transformed,
            features=self.features,
            taps=np.array(self.taps, np.int64) * TAP_BYTES,
            positions=np.arange(positions(self.tile)) * position_bytes(self.features, self.columns),
        )
        codelet = kernel_transform(self.element_type, self.tile)
        return Encoded.of(codelet, block(parameters), kernel_scratch())


@dataclass(frozen=True, slots=True)
class WinogradTiles(HostWork):
    """Work on transformed tiles of `images` images A, and of outputs or their gradients, C.

    What tiles read after the last rows and columns is zero. Tiles have `tile` outputs along each side. In images with
    depth, the slices of inputs that a slice of outputs reads have equal parts of the features.
    """

    images: int
    a: Images
    c: Images
    tile: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of an image's tiles."""
        rows, columns = (-(-size // self.tile) for size in self.c.size)
        return rows, columns


@dataclass(frozen=True, slots=True)
class WinogradProduct(WinogradTiles):
    """Convolves images with a transformed kernel. A unit has `unit_rows` rows of tiles, counted through all images."""

    transformed: Address
    unit_rows: int

    @property
    def unit_count(self) -> int:
        return -(-self.images * self.tiles[0] // self.unit_rows)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of the images."""
        yield from (self.a.footprint(self.images, False), self.c.footprint(self.images, True))

    def encode(self) -> Encoded:
        """The words of `TransformedProduct`; scratch has tables, transformed inputs, and products."""
        from engine.codelets.convolutions.winograd import TransformedProduct, product_of_tiles

        features, outputs = self.a.features, self.c.features
        tiles = block_tiles(features, outputs, self.tile)
        tile_m = 4 * whole_vectors(outputs)
        position_m = tiles * tile_m + PADDING
        layout = ScratchLayout()
        parameters = TransformedProduct(
            **tile_fields(self, tiles, layout),
            transformed=self.transformed,
            unit_tiles=self.unit_rows * self.tiles[1],
            position_b=position_bytes(features, outputs),
            position_m=position_m,
            tile_m=tile_m,
            rows_of_a=layout.after_words(8 * tiles),
            rows_of_m=layout.after_words(8 * tiles),
            k_of_a=layout.after_words(8 * features),
            products_at=layout.after_words(positions(self.tile) * position_m),
        )
        codelet = product_of_tiles(self.a.element_type, self.c.element_type, self.tile)
        return Encoded.of(codelet, block(parameters), layout.space())


@dataclass(frozen=True, slots=True)
class WinogradGradient(WinogradTiles):
    """Sums of transformed inputs times transformed gradients of outputs.

    Each part of `part_tiles` tiles has sums of its own, [part, position, input feature, output feature].
    """

    sums: Address
    part_tiles: int

    @property
    def parts(self) -> int:
        """The number of parts of the tiles."""
        return -(-self.images * prod(self.tiles) // self.part_tiles)

    @property
    def unit_count(self) -> int:
        return self.parts * -(-self.a.features // GRADIENT_BLOCK)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of inputs, gradients and sums."""
        yield from (self.a.footprint(self.images, False), self.c.footprint(self.images, False))
        size = self.parts * positions(self.tile) * position_bytes(self.a.features, self.c.features)
        yield Footprint(self.sums, 0, size, True)

    def encode(self) -> Encoded:
        """The words of `Gradient`; scratch has tables, zeros, and transformed inputs and gradients."""
        from engine.codelets.convolutions.winograd_gradient import Gradient, gradient_of_tiles

        features, outputs = self.a.features, self.c.features
        tiles = block_tiles(features, outputs, self.tile, LEAST_GRADIENT_TILES)
        pitch, position_sums = 4 * whole_vectors(outputs), position_bytes(features, outputs)
        position_g = tiles * pitch + PADDING
        layout = ScratchLayout()
        parameters = Gradient(
            **tile_fields(self, tiles, layout),
            sums=self.sums,
            part_tiles=self.part_tiles,
            part_bytes=positions(self.tile) * position_sums,
            position_sums=position_sums,
            feature_sums=pitch,
            position_g=position_g,
            features_of_a=layout.after_words(8 * features),
            k=layout.after_words(8 * tiles),
            rows_of_sums=layout.after_words(8 * features),
            gradients_at=layout.after_words(positions(self.tile) * position_g),
        )
        codelet = gradient_of_tiles(self.a.element_type, self.tile)
        return Encoded.of(codelet, block(parameters), layout.space())


@dataclass(frozen=True, slots=True)
class WinogradSums(HostWork):
    """Adds the partial sums of `parts`, and transforms them to taps at byte offsets `taps`.

    Features are `feature_c` bytes apart. The `depth` slices of taps have equal parts of the features, and are `slice_c`
    bytes apart.
    """

    sums: Address
    c: Address
    parts: int
    features: int
    outputs: int
    taps: Offsets
    feature_c: int
    depth: int = 1
    slice_c: int = 0
    result_type: str = "f32"
    tile: int = OUTPUTS

    @property
    def unit_count(self) -> int:
        return self.features

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last sum and result."""
        position = position_bytes(self.features, self.outputs)
        yield Footprint(self.sums, 0, self.parts * positions(self.tile) * position, False)
        last = (self.features // self.depth - 1) * self.feature_c, (self.depth - 1) * self.slice_c
        ends = [
            int(tap) + feature + deep for tap in self.taps.table for feature in (0, last[0]) for deep in (0, last[1])
        ]
        yield Footprint(self.c, min(ends), max(ends) + Shape(self.result_type).dtype.itemsize * self.outputs, True)

    def encode(self) -> Encoded:
        """The words of `Sums`; scratch has the sums of one input feature."""
        from engine.codelets.convolutions.winograd_gradient import Sums, sums_of_taps

        position, pitch = position_bytes(self.features, self.outputs), 4 * whole_vectors(self.outputs)
        parameters = Sums(
            sums=self.sums,
            c=self.c,
            parts=np.arange(self.parts) * (positions(self.tile) * position),
            count=self.parts,
            outputs=self.outputs,
            position_sums=position,
            feature_sums=pitch,
            feature_c=self.feature_c,
            slice_features=self.features // self.depth,
            slice_c=self.slice_c,
            taps=self.taps.table,
            positions=np.arange(positions(self.tile)) * pitch,
            added=RESERVED_SCRATCH,
        )
        codelet = sums_of_taps(self.result_type, self.tile)
        return Encoded.of(codelet, block(parameters), positions(self.tile) * pitch)
