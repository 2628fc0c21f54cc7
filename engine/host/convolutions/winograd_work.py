"""Work of convolutions, and gradients by their kernels, by Winograd's F(2 x 2, 3 x 3) or F(4 x 4, 3 x 3).

The tiles of Winograd's convolutions: where they are in the two arrays of images that they connect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from engine.codelets.products.contract_fields import right_operand_record
from engine.codelets.products.micro_kernel import panel_columns
from engine.ir.shape import Shape
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.processor import lanes
from engine.program.buffer import Address
from engine.program.work.base import Footprint
from engine.program.work.offsets import Offsets

Strides = tuple[int, int, int]
"""Bytes between images, rows and columns."""


class Depth(NamedTuple):
    """Slices of outputs of an image with depth, bytes between slices of inputs, and slices that an output reads."""

    slices: int = 1
    stride: int = 0
    taps: int = 1


class Images(NamedTuple):
    """Images of contiguous features; in images with `depth`, each slice of outputs counts as an image.

    `low` is the padding with zeros before the first row and column.
    """

    address: Address
    features: int
    strides: Strides
    size: tuple[int, int]
    low: tuple[int, int] = (0, 0)
    depth: Depth = Depth()
    item: int = 4
    """Bytes of an element."""


def footprints(images: int, inputs: Images, outputs: Images, written: Address) -> Iterator[Footprint]:
    """Footprints from the first to the last element of inputs and of outputs."""
    for each in (inputs, outputs):
        counts = images // each.depth.slices, *each.size
        last = [(count - 1) * stride for count, stride in zip(counts, each.strides, strict=True)]
        last.append((each.depth.slices + each.depth.taps - 2) * each.depth.stride)
        begin, end = sum(min(0, each) for each in last), sum(max(0, each) for each in last)
        yield Footprint(
            each.address, begin, end + each.item * each.features // each.depth.taps, each.address is written
        )


def tile_fields(
    images: int, inputs: Images, outputs: Images, tile: int, block: int, layout: ScratchLayout
) -> dict[str, Any]:
    """Fields of `Tiles` for blocks of `block` tiles; adds their areas to the layout of scratch.

    A tile has `tile` outputs along each side.
    """
    rows, columns = (-(-size // tile) for size in outputs.size)
    vector = 4 * lanes() * block
    position = whole_vectors(inputs.features) // lanes() * vector + PADDING
    return {
        "a": inputs.address,
        "c": outputs.address,
        "features": inputs.features,
        "outputs": outputs.features,
        "tiles": images * rows * columns,
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
        """The fields of the contraction's B, then those of the transform."""
        from engine.codelets.convolutions.winograd import TAP_BYTES, Kernel, kernel_scratch, kernel_transform

        item = Shape(self.element_type).dtype.itemsize
        contraction = right_operand_record(self.kernel, self.k_b.table, self.columns, self.stride_b, item)
        parameters = Kernel(
            **vars(contraction),
            transformed=self.transformed,
            features=self.features,
            taps=np.array(self.taps, np.int64) * TAP_BYTES,
            positions=np.arange(positions(self.tile)) * position_bytes(self.features, self.columns),
        )
        codelet = kernel_transform(self.element_type, self.tile)
        return Encoded.of(codelet, block(parameters), kernel_scratch())


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradTiles(HostWork):
    """Work on transformed tiles of `images` images, each with a `size`, `features`, and a `field` of output positions.

    `low` is the padding with zeros before the first row and column; what tiles read after the last ones is zero, too.
    Strides, in bytes, are those of images, rows and columns; features are contiguous. C has the outputs, or their
    gradients. Tiles have `tile` outputs along each side. In images with `depth`, each slice of outputs counts as an
    image, and the slices of inputs that it reads have equal parts of the `features`.
    """

    a: Address
    c: Address
    images: int
    size: tuple[int, int]
    low: tuple[int, int]
    field: tuple[int, int]
    features: int
    outputs: int
    strides_a: Strides
    strides_c: Strides
    depth: Depth = Depth()
    element_type: str = "f32"
    tile: int = OUTPUTS

    def arrays(self, element_type: str) -> tuple[Images, Images]:
        """The images, and those of C with elements of a type."""
        item, other = (Shape(each).dtype.itemsize for each in (self.element_type, element_type))
        inputs = Images(self.a, self.features, self.strides_a, self.size, self.low, self.depth, item)
        return inputs, Images(self.c, self.outputs, self.strides_c, self.field, item=other)


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradProduct(WinogradTiles):
    """Convolves images with a transformed kernel. A unit has `unit_rows` rows of tiles, counted through all images."""

    transformed: Address
    unit_rows: int
    result_type: str = "f32"

    @property
    def unit_count(self) -> int:
        return -(-self.images * -(-self.field[0] // self.tile) // self.unit_rows)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of the images."""
        return footprints(self.images, *self.arrays(self.result_type), self.c)

    def encode(self) -> Encoded:
        """The words of `TransformedProduct`; scratch has tables, transformed inputs, and products."""
        from engine.codelets.convolutions.winograd import TransformedProduct, product_of_tiles

        tiles = block_tiles(self.features, self.outputs, self.tile)
        tile_m = 4 * whole_vectors(self.outputs)
        position_m = tiles * tile_m + PADDING
        layout = ScratchLayout()
        parameters = TransformedProduct(
            **tile_fields(self.images, *self.arrays(self.result_type), self.tile, tiles, layout),
            transformed=self.transformed,
            unit_tiles=self.unit_rows * -(-self.field[1] // self.tile),
            position_b=position_bytes(self.features, self.outputs),
            position_m=position_m,
            tile_m=tile_m,
            rows_of_a=layout.after_words(8 * tiles),
            rows_of_m=layout.after_words(8 * tiles),
            k_of_a=layout.after_words(8 * self.features),
            products_at=layout.after_words(positions(self.tile) * position_m),
        )
        codelet = product_of_tiles(self.element_type, self.result_type, self.tile)
        return Encoded.of(codelet, block(parameters), layout.space())


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradGradient(WinogradTiles):
    """Sums of transformed inputs times transformed gradients of outputs.

    Each part of `part_tiles` tiles has sums of its own, [part, position, input feature, output feature].
    """

    sums: Address
    part_tiles: int

    @property
    def parts(self) -> int:
        """The number of parts of the tiles."""
        rows, columns = (-(-size // self.tile) for size in self.field)
        return -(-self.images * rows * columns // self.part_tiles)

    @property
    def unit_count(self) -> int:
        return self.parts * -(-self.features // GRADIENT_BLOCK)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of inputs, gradients and sums."""
        yield from footprints(self.images, *self.arrays(self.element_type), self.sums)
        size = self.parts * positions(self.tile) * position_bytes(self.features, self.outputs)
        yield Footprint(self.sums, 0, size, True)

    def encode(self) -> Encoded:
        """The words of `Gradient`; scratch has tables, zeros, and transformed inputs and gradients."""
        from engine.codelets.convolutions.winograd_gradient import Gradient, gradient_of_tiles

        tiles = block_tiles(self.features, self.outputs, self.tile, LEAST_GRADIENT_TILES)
        pitch = 4 * whole_vectors(self.outputs)
        position_g = tiles * pitch + PADDING
        layout = ScratchLayout()
        parameters = Gradient(
            **tile_fields(self.images, *self.arrays(self.element_type), self.tile, tiles, layout),
            sums=self.sums,
            part_tiles=self.part_tiles,
            part_bytes=positions(self.tile) * position_bytes(self.features, self.outputs),
            position_sums=position_bytes(self.features, self.outputs),
            feature_sums=pitch,
            position_g=position_g,
            features_of_a=layout.after_words(8 * self.features),
            k=layout.after_words(8 * tiles),
            rows_of_sums=layout.after_words(8 * self.features),
            gradients_at=layout.after_words(positions(self.tile) * position_g),
        )
        codelet = gradient_of_tiles(self.element_type, self.tile)
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
