"""Convolutions of 3 x 3 taps and stride 1 by Winograd's F(2 x 2, 3 x 3): 16 products for the 36 of a tile of outputs.

`winograd_kernel` transforms the kernel; `winograd_product` transforms blocks of input tiles, multiplies them by the
transformed kernel, one product for each of the 16 positions of a tile, and transforms the products to outputs. What is
between stays in the second-level cache.
"""

from __future__ import annotations

from engine.codelets.build import Codelet, inner
from engine.codelets.contract import Operands
from engine.codelets.contract_fields import Field
from engine.codelets.micro_kernel import library
from engine.codelets.pack import PANEL, fill_progression, packed_pitch, packing
from engine.codelets.panel import panels
from engine.codelets.record import Address, Record, Table
from engine.codelets.rows import word
from engine.codelets.winograd_sizes import KERNEL_BLOCK, OUTPUTS, POSITIONS, TAPS
from engine.codelets.winograd_transforms import INPUT, KERNEL, PRODUCTS, transforming
from engine.machine_code.abi import RESERVED_SCRATCH

TAP_BYTES = 4 * KERNEL_BLOCK * PANEL  # of a packed tap

pack_panel = packing("f32").panel
multiply_panel = panels("f32")
transform_input, transform_kernel, transform_products = (transforming(each) for each in (INPUT, KERNEL, PRODUCTS))


class Kernel(Field):
    """Parameters of `winograd_kernel`: B of the contraction that the convolution is, of [taps, input features].

    The result is [position, panel, input feature, output feature of the panel]: packed panels.
    """

    transformed: Address
    features: int  # input features
    taps: Table  # where in scratch the taps are, by rows and columns of the window
    positions: Table  # offsets of positions


class Product(Record):
    """Parameters of `winograd_product`. Tiles are numbered by image, row and column; tables hold byte offsets."""

    a: Address
    transformed: Address
    c: Address
    features: int  # input features
    outputs: int  # output features
    rows: int  # of an image's tiles
    columns: int
    odd_rows: int  # 1 if the last tiles' second rows of outputs do not exist
    odd_columns: int
    image_a: int  # bytes between images, and between rows and columns of tiles
    row_a: int
    column_a: int
    image_c: int
    row_c: int
    column_c: int
    tiles: int
    unit_tiles: int
    block_tiles: int
    position_b: int  # bytes between positions of the transformed kernel
    position_a: int  # the same of transformed inputs, and between their tiles
    tile_a: int
    position_m: int  # the same of products
    tile_m: int
    inputs: Table  # [4, 16]: inputs of a tile; of one without second column, second row, both
    results: Table  # [4, 4]: the same for outputs
    positions_a: Table  # [16]
    positions_m: Table  # [16]
    rows_of_a: int  # offsets in scratch, of tables and of transformed inputs and products
    rows_of_m: int
    k_of_a: int
    inputs_at: int
    products_at: int


def _winograd_kernel(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Unit: a panel of output features and KERNEL_BLOCK input features."""
    features, columns = word(parameters, Kernel.FEATURES), word(parameters, Field.COLUMNS)
    blocks = (features + KERNEL_BLOCK - 1) // KERNEL_BLOCK
    at = Operands(parameters, 0, word(parameters, Field.B), 0, scratch)
    offsets = scratch + RESERVED_SCRATCH
    packed = offsets + 8 * PANEL
    for unit in range(lo, hi):
        column, feature = unit // blocks * PANEL, unit % blocks * KERNEL_BLOCK
        width, count = min(PANEL, columns - column), min(KERNEL_BLOCK, features - feature)
        for tap in range(TAPS):
            pack_panel(at, column, width, tap * features + feature, count, packed + tap * TAP_BYTES, offsets)
        pitch = packed_pitch(width)
        target = word(parameters, Kernel.TRANSFORMED) + 4 * column * features + feature * pitch
        taps, positions = word(parameters, Kernel.TAPS), word(parameters, Kernel.POSITIONS)
        for i in range(count):
            transform_kernel(packed + i * pitch, taps, target + i * pitch, positions, pitch // 4)


winograd_kernel = Codelet(_winograd_kernel, "winograd_kernel", in_vectors=True)


def winograd_kernel_scratch_bytes() -> int:
    """The bytes of scratch that `winograd_kernel` needs, for any parameters."""
    return RESERVED_SCRATCH + 8 * PANEL + TAPS * TAP_BYTES


@inner
def transform_tiles(parameters: int, tile: int, count: int, scratch: int, is_input: bool) -> None:
    """Transforms the inputs of `count` tiles, or their products."""
    rows, columns = word(parameters, Product.ROWS), word(parameters, Product.COLUMNS)
    column, row, image = tile % columns, tile // columns % rows, tile // (columns * rows)
    inputs, products = scratch + word(parameters, Product.INPUTS_AT), scratch + word(parameters, Product.PRODUCTS_AT)
    for i in range(count):
        edge = word(parameters, Product.ODD_COLUMNS) if column == columns - 1 else 0
        edge += 2 * word(parameters, Product.ODD_ROWS) if row == rows - 1 else 0
        if is_input:
            source = word(parameters, Product.A) + image * word(parameters, Product.IMAGE_A)
            transform_input(
                source + row * word(parameters, Product.ROW_A) + column * word(parameters, Product.COLUMN_A),
                word(parameters, Product.INPUTS) + 8 * POSITIONS * edge,
                inputs + i * word(parameters, Product.TILE_A),
                word(parameters, Product.POSITIONS_A),
                word(parameters, Product.FEATURES),
            )
        else:
            target = word(parameters, Product.C) + image * word(parameters, Product.IMAGE_C)
            transform_products(
                products + i * word(parameters, Product.TILE_M),
                word(parameters, Product.POSITIONS_M),
                target + row * word(parameters, Product.ROW_C) + column * word(parameters, Product.COLUMN_C),
                word(parameters, Product.RESULTS) + 8 * OUTPUTS * OUTPUTS * edge,
                word(parameters, Product.OUTPUTS),
            )
        column += 1
        if column == columns:
            column, row = 0, row + 1
        if row == rows:
            row, image = 0, image + 1


@inner
def multiply_positions(parameters: int, tiles: int, scratch: int) -> None:
    """Multiplies transformed tiles by the transformed kernel, position by position."""
    features, outputs = word(parameters, Product.FEATURES), word(parameters, Product.OUTPUTS)
    rows_a, k_a = scratch + word(parameters, Product.ROWS_OF_A), scratch + word(parameters, Product.K_OF_A)
    a, rows_m = scratch + word(parameters, Product.INPUTS_AT), scratch + word(parameters, Product.ROWS_OF_M)
    b, m = word(parameters, Product.TRANSFORMED), scratch + word(parameters, Product.PRODUCTS_AT)
    for _ in range(POSITIONS):
        for column in range(0, outputs, PANEL):
            width = min(PANEL, outputs - column)
            panel = b + 4 * column * features, packed_pitch(width)
            multiply_panel(tiles, width, features, (a, rows_a, k_a), panel, m + 4 * column, rows_m, 0)
        a += word(parameters, Product.POSITION_A)
        b += word(parameters, Product.POSITION_B)
        m += word(parameters, Product.POSITION_M)


def _winograd_product(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Unit: rows of tiles. Those of all units are multiplied in blocks, as each tile is independent of the others."""
    block = word(parameters, Product.BLOCK_TILES)
    fill_progression(scratch + word(parameters, Product.ROWS_OF_A), block, word(parameters, Product.TILE_A))
    fill_progression(scratch + word(parameters, Product.ROWS_OF_M), block, word(parameters, Product.TILE_M))
    fill_progression(scratch + word(parameters, Product.K_OF_A), word(parameters, Product.FEATURES), 4)
    unit = word(parameters, Product.UNIT_TILES)
    end = min(hi * unit, word(parameters, Product.TILES))
    for tile in range(lo * unit, end, block):
        count = min(block, end - tile)
        transform_tiles(parameters, tile, count, scratch, True)
        multiply_positions(parameters, count, scratch)
        transform_tiles(parameters, tile, count, scratch, False)


winograd_product = Codelet(_winograd_product, "winograd_product", (library("f32"),), in_vectors=True)
