"""Work of convolutions by Winograd's F(2 x 2, 3 x 3) or F(4 x 4, 3 x 3): transforms of kernels, products of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.codelets.convolutions.cook_toom import (
    KERNEL_BLOCK,
    OUTPUTS,
    PADDING,
    TAPS,
    block_tiles,
    position_bytes,
    positions,
    whole_vectors,
)
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.products.contract_fields import right_operand_record
from engine.codelets.products.micro_kernel import panel_columns
from engine.ir.shape import Shape
from engine.program.buffer import Address
from engine.program.work.base import Encoded, Footprint, Work
from engine.program.work.offsets import Offsets
from engine.program.work.winograd_tiles import Depth, Images, Strides, footprints, tile_fields


@dataclass(frozen=True, slots=True)
class WinogradKernel(Work):
    """Transforms a kernel at byte offsets `k_b` [tap, input feature], `stride_b` between `columns` (output features).

    `taps` are the numbers of the taps by row and column of the window; tiles have `tile` outputs along each side.
    """

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


@dataclass(frozen=True, slots=True)
class WinogradProduct(Work):
    """Convolves `images` of `size` with a transformed kernel, to a `field` of output positions each.

    `low` is the padding with zeros before the first row and column; what tiles read after the last ones is zero, too.
    Strides, in bytes, are those of images, rows and columns; features are contiguous. A unit has `unit_rows` rows of
    tiles, which are counted through all images. In images with `depth`, each slice of outputs counts as an image, and
    the slices of inputs that it reads have equal parts of the `features`. Tiles have `tile` outputs along each side.
    """

    a: Address
    transformed: Address
    c: Address
    images: int
    size: tuple[int, int]
    low: tuple[int, int]
    field: tuple[int, int]
    features: int
    outputs: int
    strides_a: Strides
    strides_c: Strides
    unit_rows: int
    depth: Depth = Depth()
    element_type: str = "f32"
    result_type: str = "f32"
    tile: int = OUTPUTS

    @property
    def unit_count(self) -> int:
        return -(-self.images * -(-self.field[0] // self.tile) // self.unit_rows)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of the images."""
        return footprints(self.images, *self._arrays(), self.c)

    def _arrays(self) -> tuple[Images, Images]:
        item, result = (Shape(each).dtype.itemsize for each in (self.element_type, self.result_type))
        inputs = Images(self.a, self.features, self.strides_a, self.size, self.low, self.depth, item)
        return inputs, Images(self.c, self.outputs, self.strides_c, self.field, item=result)

    def encode(self) -> Encoded:
        """The words of `TransformedProduct`; scratch has tables, transformed inputs, and products."""
        from engine.codelets.convolutions.winograd import TransformedProduct, product_of_tiles

        tiles = block_tiles(self.features, self.outputs, self.tile)
        tile_m = 4 * whole_vectors(self.outputs)
        position_m = tiles * tile_m + PADDING
        layout = ScratchLayout()
        parameters = TransformedProduct(
            **tile_fields(self.images, *self._arrays(), self.tile, tiles, layout),
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
