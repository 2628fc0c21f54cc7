"""Winograd's convolutions: 36 products in place of a tile's 144 with 3 x 3 taps and tiles of 4 x 4 outputs.

`winograd_kernel` transforms the kernel; `winograd_product` transforms blocks of input tiles, multiplies them by the
transformed kernel, one product for each of the positions of a tile, and transforms the products to outputs. Transformed
tiles and products stay in the second-level cache.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.convolutions.cook_toom import KERNEL_BLOCK
from engine.codelets.convolutions.linear_forms import named
from engine.codelets.convolutions.winograd_tiles import TiledImages, TiledPart, Tiles, fill_zeros, read_tiles
from engine.codelets.convolutions.zero_sums import ZeroSums, clear_zero_sums, has_nonzero, read_flags
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.memory import call_code, load_i64, store_f32, store_i32, store_i64
from engine.codelets.language.record import Address, Table, word
from engine.codelets.products.contract import Operands
from engine.codelets.products.contract_fields import RightOperand
from engine.codelets.products.micro_kernel import library
from engine.codelets.products.narrow_products import OF_TILES, VECTOR, narrow_products
from engine.codelets.products.pack import LANES, PANEL, fill_progression, packed_pitch, packing
from engine.codelets.products.panel import NOTHING_AHEAD, panels
from engine.machine_code.abi import RESERVED_SCRATCH

TAP_BYTES = 4 * KERNEL_BLOCK * PANEL  # of a packed tap

multiply_panel = panels("f32")
multiply_vector = narrow_products(OF_TILES)


class Kernel(RightOperand):
    """Parameters of `winograd_kernel`: B, of [taps, input features], of the contraction that the convolution is.

    The result is [position, panel, part, input feature, output feature of the panel]: packed panels. Flags [tap, panel
    and block of input features], int32, are 0 where a tap is all 0.
    """

    transform: Address = 0  # code of the taps' transform
    transformed: Address
    features: int  # input features of a part
    parts: int
    tap_count: int  # of a part
    numbers: Table  # [part, tap of the part]: the tap's number in B; -1 for taps that are zeros
    taps: Table  # where in scratch the taps of a part are
    positions: Table  # offsets of positions
    packed: int  # offset in scratch of the taps of a part
    flags: Address


class TransformedProduct(Tiles):
    """Parameters of `winograd_product`.

    The transformed tiles of A are in scratch, [position, vector of features, tile, feature of the vector].
    """

    features: int  # of A, of all parts, each of whole vectors if there are several
    parts: Table  # offsets of the transformed inputs that each part of the kernel multiplies
    part_count: int
    is_even: int  # whether features and tiles are evenly spaced
    block_tiles: int  # tiles that are transformed and multiplied at a time
    transformed: Address
    unit_tiles: int
    vector_a: int  # bytes between vectors of transformed inputs, and between positions
    position_a: int
    position_b: int  # bytes between positions of the transformed kernel
    position_m: int  # bytes between positions of products, and between their tiles
    tile_m: int
    inputs_at: int  # offsets in scratch, of transformed inputs, three tables, and the products
    rows_of_a: int
    rows_of_m: int
    k_of_a: int
    products_at: int
    zero_sums: ZeroSums


@cache
def kernel_transform(element_type: str) -> Codelet:
    """Makes the `winograd_kernel` for kernels of this type."""
    pack_panel = packing(element_type).panel

    @inner
    def pack_tap(at: Operands, number: int, column: int, width: int, feature: int, count: int, target: int) -> None:
        """Packs some input features of a tap; a tap that does not exist is zeros."""
        if number >= 0:
            features = word(at.parameters, Kernel.FEATURES)
            pack_panel(at, column, width, number * features + feature, count, target, at.scratch + RESERVED_SCRATCH)
        else:
            for i in range(count * packed_pitch(width) // 4):
                store_f32(target + 4 * i, 0.0)

    def transform_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        """Unit: a panel of output features and KERNEL_BLOCK input features of a part."""
        features, columns = word(parameters, Kernel.FEATURES), word(parameters, Kernel.COLUMNS)
        blocks, parts = (features + KERNEL_BLOCK - 1) // KERNEL_BLOCK, word(parameters, Kernel.PARTS)
        taps, transform = word(parameters, Kernel.TAP_COUNT), word(parameters, Kernel.TRANSFORM)
        at = Operands(parameters, 0, word(parameters, Kernel.B), 0, scratch)
        packed, of_tap = scratch + word(parameters, Kernel.PACKED), (columns + PANEL - 1) // PANEL * blocks
        for unit in range(lo, hi):
            column, part = unit // (parts * blocks) * PANEL, unit // blocks % parts
            feature = unit % blocks * KERNEL_BLOCK
            width, count = min(PANEL, columns - column), min(KERNEL_BLOCK, features - feature)
            pitch, flag = packed_pitch(width), word(parameters, Kernel.FLAGS)
            flag += 4 * (unit // (parts * blocks) * blocks + unit % blocks)
            for tap in range(part * taps, (part + 1) * taps):
                number, into = load_i64(word(parameters, Kernel.NUMBERS) + 8 * tap), packed + tap % taps * TAP_BYTES
                pack_tap(at, number, column, width, feature, count, into)
                store_i32(flag + 4 * tap * of_tap, has_nonzero(into, count * pitch, 4))
            target = word(parameters, Kernel.TRANSFORMED) + 4 * column * features * parts
            target += (part * features + feature) * pitch
            sources, targets = word(parameters, Kernel.TAPS), word(parameters, Kernel.POSITIONS)
            for i in range(count):
                call_code(transform, sources, targets, packed + i * pitch, target + i * pitch, pitch // 4)

    return Codelet(transform_units, named("winograd_kernel", element_type), in_vectors=True)


@inner
def fill_features(table: int, count: int, vector: int, first: int) -> None:
    """Fills a table with the offsets of features in a transformed tile, with `vector` bytes between vectors."""
    for i in range(count):
        store_i64(table + 8 * i, first + i // LANES * vector + 4 * (i % LANES))


@inner
def store_outputs(parameters: int, tile: int, count: int, scratch: int) -> None:
    """Transforms the products of `count` tiles to outputs."""
    row_tiles, image_rows = word(parameters, Tiles.ROW_TILES), word(parameters, Tiles.IMAGE_ROWS)
    row, column, table = tile // row_tiles, tile % row_tiles, scratch + word(parameters, Tiles.ROWS)
    source = scratch + word(parameters, TransformedProduct.PRODUCTS_AT)
    pitch, size = word(parameters, TransformedProduct.TILE_M), word(parameters, TransformedProduct.POSITION_M)
    images, tile_rows = parameters + 8 * TransformedProduct.C, word(parameters, Tiles.TILE_ROWS)
    transform = word(images, TiledImages.TRANSFORM)
    stride, step = word(images, TiledImages.ROW), word(images, TiledImages.COLUMN)
    whole, outputs = TiledPart.read(word(images, TiledImages.PARTS)), word(images, TiledImages.FEATURES)
    while count > 0:
        run = min(count, row_tiles - column)
        first = tile_rows * (row % image_rows)
        c = word(images, TiledImages.ARRAY) + row // image_rows * word(images, TiledImages.IMAGE) + first * stride
        # A row that does not exist is written to the first row's place, before the first row's own values.
        for i in range(tile_rows):
            exists = first + i < whole.rows
            store_i64(table + 8 * i, c + i * stride if exists else c)
        begin, ahead = word(parameters, Tiles.TILE_COLUMNS) * column, tile_rows * stride
        call_code(transform, table, step, begin, whole.columns, run, source, pitch, size, ahead, outputs)
        source += run * pitch
        count -= run
        row, column = row + 1, 0


@inner
def multiply_positions(parameters: int, tiles: int, count: int, scratch: int) -> None:
    """Multiplies transformed tiles by the transformed kernel, `count` positions one by one."""
    features = word(parameters, TransformedProduct.PART_COUNT) * word(
        parameters + 8 * TransformedProduct.A, TiledImages.FEATURES
    )
    outputs = word(parameters + 8 * TransformedProduct.C, TiledImages.FEATURES)
    rows_a = scratch + word(parameters, TransformedProduct.ROWS_OF_A)
    k_a = scratch + word(parameters, TransformedProduct.K_OF_A)
    a = scratch + word(parameters, TransformedProduct.INPUTS_AT)
    rows_m = scratch + word(parameters, TransformedProduct.ROWS_OF_M)
    b, m = word(parameters, TransformedProduct.TRANSFORMED), scratch + word(parameters, TransformedProduct.PRODUCTS_AT)
    vector, pitch = word(parameters, TransformedProduct.VECTOR_A), word(parameters, TransformedProduct.TILE_M)
    for _ in range(count):
        for column in range(0, outputs, PANEL):
            width = min(PANEL, outputs - column)
            panel = b + 4 * column * features
            if width > LANES or word(parameters, TransformedProduct.IS_EVEN) == 0:
                rows, packed = (a, rows_a, k_a), (panel, packed_pitch(width))
                ahead = NOTHING_AHEAD, NOTHING_AHEAD
                multiply_panel(tiles, width, features, rows, packed, *ahead, m + 4 * column, rows_m, 0)
            else:
                multiply_vector(tiles, features, a, vector, panel, m + 4 * column, pitch, 0)
        a += word(parameters, TransformedProduct.POSITION_A)
        b += word(parameters, TransformedProduct.POSITION_B)
        m += word(parameters, TransformedProduct.POSITION_M)


def _winograd_product(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Unit: some tiles. Tiles of all units are multiplied in blocks: each tile is independent of the others."""
    given, images = TransformedProduct.read(parameters), parameters + 8 * TransformedProduct.A
    features, places, block = word(images, TiledImages.FEATURES), scratch + given.rows_of_a, given.block_tiles
    fill_progression(scratch + given.rows_of_m, block, given.tile_m)
    for part in range(given.part_count):
        table = scratch + given.k_of_a + 8 * part * features
        fill_features(table, features, given.vector_a, load_i64(given.parts + 8 * part))
    fill_zeros(parameters, scratch)
    inputs, pitches = scratch + given.inputs_at, (VECTOR, given.vector_a, given.position_a)
    further = given.below, given.beside
    end, zeros = min(hi * given.unit_tiles, given.tiles), parameters + 8 * TransformedProduct.ZERO_SUMS
    taps = read_flags(zeros, given.transformed + word(zeros, ZeroSums.FLAGS), scratch)
    is_whole = taps == word(zeros, ZeroSums.TAP_COUNT)
    may_err = taps > 0 and not (is_whole and word(zeros, ZeroSums.IS_EXACT) != 0)
    for tile in range(lo * given.unit_tiles, end, block):
        count = min(block, end - tile)
        read_tiles(parameters, images, further, tile, count, 0, given.features, inputs, pitches, places, scratch)
        multiply_positions(parameters, count, given.positions, scratch)
        store_outputs(parameters, tile, count, scratch)
        if may_err:
            clear_zero_sums(parameters, zeros, tile, count, is_whole, scratch)


winograd_product = Codelet(_winograd_product, "winograd_product", (library("f32"),), in_vectors=True)
