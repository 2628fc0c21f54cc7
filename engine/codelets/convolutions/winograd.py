"""Convolutions of 3 x 3 taps and stride 1 by Winograd's F(4 x 4, 3 x 3): 36 products in place of a tile's 144.

Small tiles have 2 x 2 outputs, which take 16 products in place of 36.

`winograd_kernel` transforms the kernel; `winograd_product` transforms blocks of input tiles, multiplies them by the
transformed kernel, one product for each of the positions of a tile, and transforms the products to outputs. Transformed
tiles and products stay in the second-level cache.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.convolutions.cook_toom import KERNEL_BLOCK, OUTPUTS, ROW_WORDS, TAPS, positions, side
from engine.codelets.convolutions.linear_forms import transforming
from engine.codelets.convolutions.winograd_runs import TRANSFORMS, reading_runs, writing_runs
from engine.codelets.language.build import Codelet, Inner, inner
from engine.codelets.language.memory import store_f32, store_i64
from engine.codelets.language.record import Address, Record, Table, word
from engine.codelets.language.scratch import ScratchLayout, ScratchSpace
from engine.codelets.language.vector import BYTES
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

    The result is [position, panel, input feature, output feature of the panel]: packed panels.
    """

    transformed: Address
    features: int  # input features
    taps: Table  # where in scratch the taps are, by row and column of the window
    positions: Table  # offsets of positions


class Tiles(Record):
    """Tiles, numbered by image, row and column, of two arrays: inputs in A, outputs or their gradients in C.

    The transformed tiles of A are in scratch, [position, vector of features, tile, feature of the vector].
    """

    a: Address
    c: Address
    features: int  # of A
    outputs: int  # of C
    tiles: int
    image_rows: int  # rows of tiles of an image
    row_tiles: int
    image_a: int  # bytes between images, rows and columns
    slices: int  # of outputs of an image, if it has depth: tiles count them as images
    slice_a: int  # bytes between slices of A
    depth: int  # slices of A that a slice of outputs reads, each with its part of the features
    row_a: int
    column_a: int
    image_c: int
    row_c: int
    column_c: int
    rows_a: int  # of an image: other rows of a tile are zeros, and so are other columns
    columns_a: int
    rows_c: int
    columns_c: int
    first_row: int  # of the first tile in A; first_column likewise
    first_column: int
    block_tiles: int  # tiles that are transformed and multiplied at a time
    position_a: int  # bytes between positions, and between vectors
    vector_a: int
    rows: int  # offsets in scratch: a tile's table of rows, zeros for its features or outputs, transformed tiles
    zeros: int
    inputs_at: int


_layout = ScratchLayout()
COLUMN, PACKED = _layout.area(8 * PANEL), _layout.area(TAPS * TAP_BYTES)
KERNEL_SCRATCH = _layout.space()


class TransformedProduct(Tiles):
    """Parameters of `winograd_product`."""

    transformed: Address
    unit_tiles: int
    position_b: int  # bytes between positions of the transformed kernel
    position_m: int  # bytes between positions of products, and between their tiles
    tile_m: int
    rows_of_a: int  # offsets in scratch, of three tables and of the products
    rows_of_m: int
    k_of_a: int
    products_at: int


@cache
def kernel_transform(element_type: str, tile: int = OUTPUTS) -> Codelet:
    """Makes the `winograd_kernel` for kernels of this type and tiles of `tile` outputs along each side."""
    pack_panel, (transform, matrix, *_) = packing(element_type).panel, TRANSFORMS[tile].kernel
    transform_kernel = transforming(transform, matrix, matrix)

    def transform_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        """Unit: a panel of output features and KERNEL_BLOCK input features."""
        features, columns = word(parameters, Kernel.FEATURES), word(parameters, Kernel.COLUMNS)
        blocks = (features + KERNEL_BLOCK - 1) // KERNEL_BLOCK
        at = Operands(parameters, 0, word(parameters, Kernel.B), 0, scratch)
        offsets, packed = scratch + RESERVED_SCRATCH + COLUMN, scratch + RESERVED_SCRATCH + PACKED
        for unit in range(lo, hi):
            column, feature = unit // blocks * PANEL, unit % blocks * KERNEL_BLOCK
            width, count = min(PANEL, columns - column), min(KERNEL_BLOCK, features - feature)
            for tap in range(TAPS):
                pack_panel(at, column, width, tap * features + feature, count, packed + tap * TAP_BYTES, offsets)
            pitch = packed_pitch(width)
            target = word(parameters, Kernel.TRANSFORMED) + 4 * column * features + feature * pitch
            taps, positions = word(parameters, Kernel.TAPS), word(parameters, Kernel.POSITIONS)
            for i in range(count):
                transform_kernel(taps, positions, packed + i * pitch, target + i * pitch, pitch // 4)

    return Codelet(transform_units, codelet_name("winograd_kernel", tile, element_type), in_vectors=True)


def codelet_name(codelet: str, tile: int, *types: str) -> str:
    """A codelet's name, with its element types unless all are f32. The function has another: transforms use these."""
    codelet += f"_{tile}" * (tile != OUTPUTS)
    return codelet if set(types) == {"f32"} else "_".join((codelet, *types))


winograd_kernel = kernel_transform("f32")


def kernel_scratch() -> ScratchSpace:
    """The scratch that `winograd_kernel` needs, for any parameters."""
    return KERNEL_SCRATCH


@inner
def fill_zeros(parameters: int, scratch: int) -> None:
    """Writes the zeros that stand for rows of tiles outside of an image."""
    for i in range(max(word(parameters, Tiles.FEATURES), word(parameters, Tiles.OUTPUTS))):
        store_f32(scratch + word(parameters, Tiles.ZEROS) + 4 * i, 0.0)


@inner
def fill_features(table: int, count: int, vector: int) -> None:
    """Fills a table with the offsets of features in a transformed tile, with `vector` bytes between vectors."""
    for i in range(count):
        store_i64(table + 8 * i, i // LANES * vector + 4 * (i % LANES))


@inner
def fill_rows(
    parameters: int, table: int, image: int, row: int, rows: int, extent: int, pitch: int, column: int
) -> None:
    """Fills the table of `rows` rows from `row` on; rows that are not 0 <= row < `extent` are zeros."""
    zeros = table + word(parameters, Tiles.ZEROS) - word(parameters, Tiles.ROWS)
    for i in range(row, row + rows):
        inside = 0 <= i and i < extent
        store_i64(table, image + i * pitch if inside else zeros)
        store_i64(table + 8, column if inside else 0)
        table += 8 * ROW_WORDS


@cache
def input_transforms(element_type: str, tile: int) -> Inner:
    """Makes the `transform_inputs` for images of this type."""
    transform_input, item = reading_runs(TRANSFORMS[tile].input, element_type), BYTES[element_type]
    tile_side, tile_outputs = side(tile), tile

    @inner
    def transform_run(
        parameters: int,
        image: int,
        row: int,
        column: int,
        run: int,
        feature: int,
        features: int,
        target: int,
        scratch: int,
    ) -> None:
        """Transforms some features of a run of tiles; each slice of inputs has a part of all features."""
        table, stride = scratch + word(parameters, Tiles.ROWS), word(parameters, Tiles.ROW_A)
        pitch = word(parameters, Tiles.VECTOR_A)
        size = word(parameters, Tiles.POSITION_A)
        extent = word(parameters, Tiles.ROWS_A)
        first = word(parameters, Tiles.FIRST_ROW) + tile_outputs * row
        begin = word(parameters, Tiles.FIRST_COLUMN) + tile_outputs * column
        columns = word(parameters, Tiles.COLUMNS_A)
        of_slice = word(parameters, Tiles.FEATURES) // word(parameters, Tiles.DEPTH)
        done = 0
        while done < features:
            deep, at = (feature + done) // of_slice, (feature + done) % of_slice
            some = min(features - done, of_slice - at)
            source = image + deep * word(parameters, Tiles.SLICE_A) + item * at
            fill_rows(parameters, table, source, first, tile_side, extent, stride, word(parameters, Tiles.COLUMN_A))
            into = target + done // LANES * pitch
            transform_input(table, begin, columns, run, into, VECTOR, pitch, size, tile_outputs * stride, some)
            done += some

    @inner
    def transform_inputs(parameters: int, tile: int, count: int, feature: int, features: int, scratch: int) -> None:
        """Transforms some features of `count` tiles' inputs."""
        row_tiles, image_rows = word(parameters, Tiles.ROW_TILES), word(parameters, Tiles.IMAGE_ROWS)
        row, column, slices = tile // row_tiles, tile % row_tiles, word(parameters, Tiles.SLICES)
        target = scratch + word(parameters, Tiles.INPUTS_AT)
        while count > 0:
            run = min(count, row_tiles - column)
            number = row // image_rows
            image = word(parameters, Tiles.A) + number // slices * word(parameters, Tiles.IMAGE_A)
            image += number % slices * word(parameters, Tiles.SLICE_A)
            transform_run(parameters, image, row % image_rows, column, run, feature, features, target, scratch)
            target += run * VECTOR
            count -= run
            row, column = row + 1, 0

    return transform_inputs


@cache
def _output_stores(element_type: str, tile: int) -> Inner:
    transform_products, tile_outputs = writing_runs(TRANSFORMS[tile].products, element_type), tile

    @inner
    def store_outputs(parameters: int, tile: int, count: int, scratch: int) -> None:
        """Transforms the products of `count` tiles to outputs."""
        row_tiles, image_rows = word(parameters, Tiles.ROW_TILES), word(parameters, Tiles.IMAGE_ROWS)
        row, column, table = tile // row_tiles, tile % row_tiles, scratch + word(parameters, Tiles.ROWS)
        source, outputs = scratch + word(parameters, TransformedProduct.PRODUCTS_AT), word(parameters, Tiles.OUTPUTS)
        pitch, size = word(parameters, TransformedProduct.TILE_M), word(parameters, TransformedProduct.POSITION_M)
        while count > 0:
            run = min(count, row_tiles - column)
            first = tile_outputs * (row % image_rows)
            c = word(parameters, Tiles.C) + row // image_rows * word(parameters, Tiles.IMAGE_C)
            c += first * word(parameters, Tiles.ROW_C)
            # A row that does not exist is written to the first row's place, before the first row's own values.
            for i in range(tile_outputs):
                exists = first + i < word(parameters, Tiles.ROWS_C)
                store_i64(table + 8 * ROW_WORDS * i, c + i * word(parameters, Tiles.ROW_C) if exists else c)
                store_i64(table + 8 * ROW_WORDS * i + 8, word(parameters, Tiles.COLUMN_C))
            columns, ahead = word(parameters, Tiles.COLUMNS_C), tile_outputs * word(parameters, Tiles.ROW_C)
            transform_products(table, tile_outputs * column, columns, run, source, pitch, size, ahead, outputs)
            source += run * pitch
            count -= run
            row, column = row + 1, 0

    return store_outputs


@inner
def multiply_positions(parameters: int, tiles: int, count: int, scratch: int) -> None:
    """Multiplies transformed tiles by the transformed kernel, `count` positions one by one."""
    features, outputs = word(parameters, TransformedProduct.FEATURES), word(parameters, TransformedProduct.OUTPUTS)
    rows_a = scratch + word(parameters, TransformedProduct.ROWS_OF_A)
    k_a = scratch + word(parameters, TransformedProduct.K_OF_A)
    a = scratch + word(parameters, TransformedProduct.INPUTS_AT)
    rows_m = scratch + word(parameters, TransformedProduct.ROWS_OF_M)
    b, m = word(parameters, TransformedProduct.TRANSFORMED), scratch + word(parameters, TransformedProduct.PRODUCTS_AT)
    vector, pitch = word(parameters, Tiles.VECTOR_A), word(parameters, TransformedProduct.TILE_M)
    for _ in range(count):
        for column in range(0, outputs, PANEL):
            width = min(PANEL, outputs - column)
            panel = b + 4 * column * features
            if width > LANES:
                rows, packed = (a, rows_a, k_a), (panel, packed_pitch(width))
                ahead = NOTHING_AHEAD, NOTHING_AHEAD
                multiply_panel(tiles, width, features, rows, packed, *ahead, m + 4 * column, rows_m, 0)
            else:
                multiply_vector(tiles, features, a, vector, panel, m + 4 * column, pitch, 0)
        a += word(parameters, TransformedProduct.POSITION_A)
        b += word(parameters, TransformedProduct.POSITION_B)
        m += word(parameters, TransformedProduct.POSITION_M)


@cache
def product_of_tiles(element_type: str, result_type: str, tile_outputs: int = OUTPUTS) -> Codelet:
    """Makes `winograd_product` from one image type to another, by tiles of `tile_outputs` outputs along each side."""
    transform_inputs, count_of_positions = input_transforms(element_type, tile_outputs), positions(tile_outputs)
    store_outputs = _output_stores(result_type, tile_outputs)

    def multiply_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        """Unit: rows of tiles. Tiles of all units are multiplied in blocks: each tile is independent of the others."""
        block = word(parameters, TransformedProduct.BLOCK_TILES)
        fill_progression(scratch + word(parameters, TransformedProduct.ROWS_OF_A), block, VECTOR)
        fill_progression(
            scratch + word(parameters, TransformedProduct.ROWS_OF_M), block, word(parameters, TransformedProduct.TILE_M)
        )
        features = word(parameters, TransformedProduct.FEATURES)
        fill_features(
            scratch + word(parameters, TransformedProduct.K_OF_A),
            features,
            word(parameters, TransformedProduct.VECTOR_A),
        )
        fill_zeros(parameters, scratch)
        unit = word(parameters, TransformedProduct.UNIT_TILES)
        end = min(hi * unit, word(parameters, TransformedProduct.TILES))
        for tile in range(lo * unit, end, block):
            count = min(block, end - tile)
            transform_inputs(parameters, tile, count, 0, features, scratch)
            multiply_positions(parameters, count, count_of_positions, scratch)
            store_outputs(parameters, tile, count, scratch)

    name = codelet_name("winograd_product", tile_outputs, element_type, result_type)
    return Codelet(multiply_units, name, (library("f32"),), in_vectors=True)


winograd_product = product_of_tiles("f32", "f32")
