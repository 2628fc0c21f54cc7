"""Work of 3 x 3 convolutions by Winograd's F(2 x 2, 3 x 3): kernels' transforms, products of transformed tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.codelets.contract_fields import contract_record
from engine.codelets.micro_kernel import panel_columns
from engine.codelets.record import block
from engine.codelets.winograd_sizes import (
    KERNEL_BLOCK,
    OUTPUTS,
    PADDING,
    POSITIONS,
    SIDE,
    TAPS,
    block_tiles,
    position_bytes,
    whole_vectors,
)
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.buffer import Address
from engine.program.work.base import Encoded, Footprint, Work
from engine.program.work.offsets import Offsets


@dataclass(frozen=True, slots=True)
class WinogradKernel(Work):
    """Transforms a kernel at `k_b` [tap, input feature] and `stride_b` between its `columns`, the output features.

    `taps` are the numbers of the taps by row and column of the window.
    """

    kernel: Address
    transformed: Address
    k_b: Offsets
    taps: tuple[int, ...]
    columns: int
    stride_b: int

    @property
    def features(self) -> int:
        """The number of input features."""
        return len(self.k_b) // TAPS

    @property
    def unit_count(self) -> int:
        return -(-self.columns // panel_columns()) * -(-self.features // KERNEL_BLOCK)

    def encode(self) -> Encoded:
        """The fields of the contraction's B, then those of the transform."""
        from engine.codelets.winograd import TAP_BYTES, Kernel, winograd_kernel, winograd_kernel_scratch_bytes

        row, k = np.zeros(1, np.int64), self.k_b.table
        contraction = contract_record(
            a=0,
            b=self.kernel,
            c=0,
            row_a=row,
            row_c=row,
            offset_a=k,
            offset_b=k,
            columns=self.columns,
            stride_b=self.stride_b,
        )
        parameters = Kernel(
            **vars(contraction),
            transformed=self.transformed,
            features=self.features,
            taps=np.array(self.taps, np.int64) * TAP_BYTES,
            positions=np.arange(POSITIONS) * position_bytes(self.features, self.columns),
        )
        return Encoded.of(winograd_kernel, block(parameters), winograd_kernel_scratch_bytes())


@dataclass(frozen=True, slots=True)
class WinogradProduct(Work):
    """Convolves `images` with a transformed kernel, to a `field` of output positions each.

    Strides, in bytes, are those of images, rows and columns; features are contiguous. A unit has `unit_rows` rows of
    tiles, which are counted through all images.
    """

    a: Address
    transformed: Address
    c: Address
    images: int
    field: tuple[int, int]
    features: int
    outputs: int
    strides_a: tuple[int, int, int]
    strides_c: tuple[int, int, int]
    unit_rows: int

    @property
    def unit_count(self) -> int:
        return -(-self.images * self._tiles[0] // self.unit_rows)

    @property
    def _tiles(self) -> tuple[int, int]:
        """Rows and columns of an image's tiles."""
        return -(-self.field[0] // OUTPUTS), -(-self.field[1] // OUTPUTS)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of the images."""
        for address, strides, features, more in (
            (self.a, self.strides_a, self.features, 2),
            (self.c, self.strides_c, self.outputs, 0),
        ):
            counts = self.images, self.field[0] + more, self.field[1] + more
            last = sum((count - 1) * stride for count, stride in zip(counts, strides, strict=True))
            yield Footprint(address, min(last, 0), max(last, 0) + 4 * features, address is self.c)

    def encode(self) -> Encoded:
        """The words of `Product`; scratch has tables, transformed inputs, and products."""
        from engine.codelets.winograd import Product, winograd_product

        (rows, columns), tiles = self._tiles, block_tiles(self.features, self.outputs)
        tile_a, tile_m = 4 * whole_vectors(self.features), 4 * whole_vectors(self.outputs)
        position_a, position_m = tiles * tile_a + PADDING, tiles * tile_m + PADDING
        rows_of_m, k_of_a = RESERVED_SCRATCH + 8 * tiles, RESERVED_SCRATCH + 16 * tiles
        inputs_at = -(-(k_of_a + 8 * self.features) // PADDING) * PADDING
        products_at = inputs_at + POSITIONS * position_a
        parameters = Product(
            a=self.a,
            transformed=self.transformed,
            c=self.c,
            features=self.features,
            outputs=self.outputs,
            rows=rows,
            columns=columns,
            odd_rows=self.field[0] % OUTPUTS,
            odd_columns=self.field[1] % OUTPUTS,
            image_a=self.strides_a[0],
            row_a=OUTPUTS * self.strides_a[1],
            column_a=OUTPUTS * self.strides_a[2],
            image_c=self.strides_c[0],
            row_c=OUTPUTS * self.strides_c[1],
            column_c=OUTPUTS * self.strides_c[2],
            tiles=self.images * rows * columns,
            unit_tiles=self.unit_rows * columns,
            block_tiles=tiles,
            position_b=position_bytes(self.features, self.outputs),
            position_a=position_a,
            tile_a=tile_a,
            position_m=position_m,
            tile_m=tile_m,
            inputs=_at_edges(SIDE, self.strides_a),
            results=_at_edges(OUTPUTS, self.strides_c),
            positions_a=np.arange(POSITIONS) * position_a,
            positions_m=np.arange(POSITIONS) * position_m,
            rows_of_a=RESERVED_SCRATCH,
            rows_of_m=rows_of_m,
            k_of_a=k_of_a,
            inputs_at=inputs_at,
            products_at=products_at,
        )
        return Encoded.of(winograd_product, block(parameters), products_at + POSITIONS * position_m)


def _at_edges(size: int, strides: tuple[int, int, int]) -> np.ndarray:
    """Byte offsets of size x size positions, int64 [4, size**2].

    Entry 1 has no last column, 2 no last row, 3 neither: the one before takes its place, which changes no other output.
    """
    every, last = np.arange(size), size - 1
    rows, columns = (
        [np.minimum(every, last - missing) * stride for missing in (0, 1)] for stride in (strides[1], strides[2])
    )
    return np.array([np.add.outer(row, column).reshape(-1) for row in rows for column in columns], np.int64)
