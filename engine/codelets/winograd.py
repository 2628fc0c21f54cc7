"""Convolutions of 3 x 3 taps and stride 1 by Winograd's F(2 x 2, 3 x 3): 16 products for the 36 of a tile of outputs.

`winograd_kernel` transforms the kernel; `winograd_product` transforms blocks of input tiles, multiplies them by the
transformed kernel, one product for each of the 16 positions of a tile, and transforms the products to outputs. What is
between stays in the second-level cache.
"""

from __future__ import annotations

from engine.codelets.build import Codelet, inner
from engine.codelets.contract import Operands
from engine.codelets.contract_fields import Field
from engine.codelets.memory import load_i64, prefetch
from engine.codelets.micro_kernel import library
from engine.codelets.pack import PANEL, fill_progression, packed_pitch, packing
from engine.codelets.panel import panels
from engine.codelets.record import Address, Record, Table
from engine.codelets.rows import word
from engine.codelets.winograd_sizes import KERNEL_BLOCK, OFFSETS, OUTPUTS, POSITIONS, SIDE, TAPS
from engine.codelets.winograd_transforms import INPUT, KERNEL, PRODUCTS, transforming
from engine.machine_code.abi import RESERVED_SCRATCH

LINE = 64
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


class Tiles(Record):
    """Tiles, numbered by image, row and column, of two arrays: inputs in A, outputs or their gradients in C.

    Tables are int64 and hold byte offsets. The transformed tiles of A are in scratch, [position, tile, feature].
    """

    a: Address
    c: Address
    features: int  # of A
    outputs: int  # of C
    tiles: int
    image_tiles: int
    image_a: int  # bytes between images
    image_c: int
    offsets: Table  # [tiles of an image, 3]: offsets in A and in C; 1 without second column of C, 2 without row, 3 both
    inputs: Table  # [4, 16]: inputs of a tile, for each of the four kinds of tiles
    block_tiles: int  # that are transformed and multiplied at a time
    position_a: int  # bytes between positions, and between tiles
    tile_a: int
    positions_a: Table  # [16]
    inputs_at: int  # offset in scratch


class Product(Tiles):
    """Parameters of `winograd_product`."""

    transformed: Address
    unit_tiles: int
    position_b: int  # bytes between positions of the transformed kernel
    position_m: int  # the same of products, and between their tiles
    tile_m: int
    results: Table  # [4, 4]: outputs of a tile, for each of the four kinds of tiles
    positions_m: Table  # [16]
    rows_of_a: int  # offsets in scratch, of tables and of products
    rows_of_m: int
    k_of_a: int
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
def transform_inputs(parameters: int, tile: int, count: int, feature: int, features: int, scratch: int) -> None:
    """Transforms some features of `count` tiles' inputs."""
    image_tiles = word(parameters, Tiles.IMAGE_TILES)
    number, a = tile % image_tiles, word(parameters, Tiles.A) + 4 * feature
    a += tile // image_tiles * word(parameters, Tiles.IMAGE_A)
    target = scratch + word(parameters, Tiles.INPUTS_AT)
    for _ in range(count):
        at = word(parameters, Tiles.OFFSETS) + 8 * OFFSETS * number
        inputs = word(parameters, Tiles.INPUTS) + 8 * POSITIONS * load_i64(at + 16)
        transform_input(a + load_i64(at), inputs, target, word(parameters, Tiles.POSITIONS_A), features)
        target += word(parameters, Tiles.TILE_A)
        number += 1
        if number == image_tiles:
            number, a = 0, a + word(parameters, Tiles.IMAGE_A)


@inner
def store_outputs(parameters: int, tile: int, count: int, scratch: int) -> None:
    """Transforms the products of `count` tiles to outputs."""
    image_tiles, outputs = word(parameters, Tiles.IMAGE_TILES), word(parameters, Tiles.OUTPUTS)
    number, c = tile % image_tiles, word(parameters, Tiles.C)
    c += tile // image_tiles * word(parameters, Tiles.IMAGE_C)
    source = scratch + word(parameters, Product.PRODUCTS_AT)
    for _ in range(count):
        at = word(parameters, Tiles.OFFSETS) + 8 * OFFSETS * number
        results = word(parameters, Product.RESULTS) + 8 * OUTPUTS * OUTPUTS * load_i64(at + 16)
        transform_products(source, word(parameters, Product.POSITIONS_M), c + load_i64(at + 8), results, outputs)
        source += word(parameters, Product.TILE_M)
        number += 1
        if number == image_tiles:
            number, c = 0, c + word(parameters, Tiles.IMAGE_C)


@inner
def prefetch_inputs(parameters: int, tile: int, count: int) -> None:
    """Prefetches the second rows and columns of some tiles' inputs: the rest are second ones of tiles before."""
    ends = word(parameters, Tiles.INPUTS) + 8 * (POSITIONS - SIDE - OUTPUTS)
    array, image = word(parameters, Tiles.A), word(parameters, Tiles.IMAGE_A)
    prefetch_tiles(parameters, tile, count, 0, array, image, ends, SIDE, word(parameters, Tiles.FEATURES))


@inner
def prefetch_outputs(parameters: int, tile: int, count: int, offsets: int) -> None:
    """Prefetches some tiles' outputs, or their gradients, at these offsets in a tile."""
    array, image = word(parameters, Tiles.C), word(parameters, Tiles.IMAGE_C)
    prefetch_tiles(parameters, tile, count, 1, array, image, offsets, OUTPUTS, word(parameters, Tiles.OUTPUTS))


@inner
def prefetch_tiles(
    parameters: int,
    tile: int,
    count: int,
    operand: int,
    array: int,
    image: int,
    offsets: int,
    pitch: int,
    features: int,
) -> None:
    """Prefetches 2 x 2 positions of some tiles; `operand` is 0 for A, 1 for C."""
    image_tiles = word(parameters, Tiles.IMAGE_TILES)
    for each in range(tile, tile + count):
        at = word(parameters, Tiles.OFFSETS) + 8 * (OFFSETS * (each % image_tiles) + operand)
        source = array + each // image_tiles * image + load_i64(at)
        for row in range(OUTPUTS):
            for column in range(OUTPUTS):
                start = source + load_i64(offsets + 8 * (pitch * row + column))
                for line in range(0, 4 * features, LINE):
                    prefetch(start + line)


@inner
def multiply_positions(parameters: int, tile: int, tiles: int, following: int, scratch: int) -> None:
    """Multiplies transformed tiles by the transformed kernel, position by position.

    Meanwhile it prefetches the outputs of these tiles, and the inputs of the `following` ones.
    """
    features, outputs = word(parameters, Product.FEATURES), word(parameters, Product.OUTPUTS)
    rows_a, k_a = scratch + word(parameters, Product.ROWS_OF_A), scratch + word(parameters, Product.K_OF_A)
    a, rows_m = scratch + word(parameters, Product.INPUTS_AT), scratch + word(parameters, Product.ROWS_OF_M)
    b, m = word(parameters, Product.TRANSFORMED), scratch + word(parameters, Product.PRODUCTS_AT)
    share, done = (tiles + POSITIONS - 1) // POSITIONS, 0
    for _ in range(POSITIONS):
        prefetch_inputs(parameters, tile + tiles + done, min(share, following - done))
        prefetch_outputs(parameters, tile + done, min(share, tiles - done), word(parameters, Product.RESULTS))
        done += share
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
        transform_inputs(parameters, tile, count, 0, word(parameters, Product.FEATURES), scratch)
        multiply_positions(parameters, tile, count, min(block, end - tile - count), scratch)
        store_outputs(parameters, tile, count, scratch)


winograd_product = Codelet(_winograd_product, "winograd_product", (library("f32"),), in_vectors=True)
