"""Gradients of 3 x 3 convolutions by their kernels, by Winograd's transforms: 36 products in place of a tile's 144.

`winograd_gradient` transforms tiles of inputs and of the outputs' gradients, and sums their products over tiles,
separately for each position of a tile; `winograd_sums` adds the partial sums and transforms them to the taps.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.convolutions.cook_toom import GRADIENT_BLOCK, OUTPUTS, positions
from engine.codelets.convolutions.linear_forms import transforming
from engine.codelets.convolutions.overlap_add import add_floats
from engine.codelets.convolutions.winograd import (
    Tiles,
    codelet_name,
    fill_features,
    fill_rows,
    fill_zeros,
    input_transforms,
    multiply_panel,
)
from engine.codelets.convolutions.winograd_runs import TRANSFORMS, reading_runs
from engine.codelets.language.build import Codelet, Inner, inner
from engine.codelets.language.memory import load_i64
from engine.codelets.language.record import Address, Record, Table, word
from engine.codelets.language.vector import BYTES
from engine.codelets.products.micro_kernel import library
from engine.codelets.products.narrow_products import OF_FEATURES, VECTOR, narrow_products
from engine.codelets.products.pack import LANES, PANEL, fill_progression, packed_pitch
from engine.codelets.products.panel import NOTHING_AHEAD

multiply_vector = narrow_products(OF_FEATURES)


class Gradient(Tiles):
    """Parameters of `winograd_gradient`; C holds the gradients of outputs.

    Partial sums are [part of the tiles, position, input feature, output feature].
    """

    sums: Address
    part_tiles: int
    part_bytes: int
    position_sums: int  # bytes between positions, and between input features
    feature_sums: int
    position_g: int  # bytes between positions of transformed gradients in scratch: packed panels of tiles
    features_of_a: int  # offsets in scratch, of tables and of transformed gradients
    k: int
    rows_of_sums: int
    gradients_at: int


class Sums(Record):
    """Parameters of `winograd_sums`. Unit: an input feature."""

    sums: Address
    c: Address
    parts: Table  # offsets of partial sums
    count: int
    outputs: int
    position_sums: int
    feature_sums: int
    feature_c: int
    slice_features: int  # features of each slice of inputs that a slice of outputs reads
    slice_c: int  # bytes between the taps of these slices
    taps: Table  # [9]: offsets in C
    positions: Table  # offsets of added sums in scratch
    added: int  # offset in scratch


@cache
def _gradient_transforms(element_type: str, tile_outputs: int) -> Inner:
    transform_gradient = reading_runs(TRANSFORMS[tile_outputs].gradient, element_type)
    item = BYTES[element_type]

    @inner
    def transform_gradients(parameters: int, tile: int, count: int, scratch: int) -> None:
        """Transforms the gradients of `count` tiles' outputs to packed panels; outputs that do not exist are zeros."""
        row_tiles, image_rows = word(parameters, Tiles.ROW_TILES), word(parameters, Tiles.IMAGE_ROWS)
        row, column, table = tile // row_tiles, tile % row_tiles, scratch + word(parameters, Tiles.ROWS)
        outputs, size, done = word(parameters, Tiles.OUTPUTS), word(parameters, Gradient.POSITION_G), 0
        while done < count:
            run = min(count - done, row_tiles - column)
            image = word(parameters, Tiles.C) + row // image_rows * word(parameters, Tiles.IMAGE_C)
            first, extent = tile_outputs * (row % image_rows), word(parameters, Tiles.ROWS_C)
            for feature in range(0, outputs, PANEL):
                width = min(PANEL, outputs - feature)
                pitch, stride = packed_pitch(width), word(parameters, Tiles.ROW_C)
                target = scratch + word(parameters, Gradient.GRADIENTS_AT) + 4 * feature * count + done * pitch
                step, columns = word(parameters, Tiles.COLUMN_C), word(parameters, Tiles.COLUMNS_C)
                fill_rows(parameters, table, image + item * feature, first, tile_outputs, extent, stride, step)
                begin, ahead = tile_outputs * column, tile_outputs * stride
                transform_gradient(table, begin, columns, run, target, pitch, VECTOR, size, ahead, width)
            done += run
            row, column = row + 1, 0

    return transform_gradients


@inner
def add_products(parameters: int, tiles: int, features: int, sums: int, adds: int, count: int, scratch: int) -> None:
    """Multiplies transformed inputs and gradients, `count` positions one by one, and stores or adds sums over tiles."""
    outputs = word(parameters, Tiles.OUTPUTS)
    rows, k = scratch + word(parameters, Gradient.FEATURES_OF_A), scratch + word(parameters, Gradient.K)
    rows_of_sums = scratch + word(parameters, Gradient.ROWS_OF_SUMS)
    a, b = scratch + word(parameters, Tiles.INPUTS_AT), scratch + word(parameters, Gradient.GRADIENTS_AT)
    pitch = word(parameters, Gradient.FEATURE_SUMS)
    for _ in range(count):
        for column in range(0, outputs, PANEL):
            width = min(PANEL, outputs - column)
            panel, c = b + 4 * column * tiles, sums + 4 * column
            if width != LANES or features % LANES != 0:
                packed, ahead = (panel, packed_pitch(width)), (NOTHING_AHEAD, NOTHING_AHEAD)
                multiply_panel(features, width, tiles, (a, rows, k), packed, *ahead, c, rows_of_sums, adds)
            else:
                for feature in range(0, features, LANES):
                    vector = a + feature // LANES * word(parameters, Tiles.VECTOR_A)
                    multiply_vector(LANES, tiles, vector, 0, panel, c + feature * pitch, pitch, adds)
        a += word(parameters, Tiles.POSITION_A)
        b += word(parameters, Gradient.POSITION_G)
        sums += word(parameters, Gradient.POSITION_SUMS)


@cache
def gradient_of_tiles(element_type: str, tile_outputs: int = OUTPUTS) -> Codelet:
    """Makes the `winograd_gradient` of images and gradients of one type, by tiles of `tile_outputs` outputs a side."""
    transform_inputs = input_transforms(element_type, tile_outputs)
    transform_gradients = _gradient_transforms(element_type, tile_outputs)
    count_of_positions = positions(tile_outputs)

    def multiply_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        """Unit: GRADIENT_BLOCK input features of a part of the tiles. Neighbouring features are computed together."""
        features, block = word(parameters, Tiles.FEATURES), word(parameters, Tiles.BLOCK_TILES)
        fill_features(scratch + word(parameters, Gradient.FEATURES_OF_A), features, word(parameters, Tiles.VECTOR_A))
        fill_progression(scratch + word(parameters, Gradient.K), block, VECTOR)
        fill_progression(
            scratch + word(parameters, Gradient.ROWS_OF_SUMS), features, word(parameters, Gradient.FEATURE_SUMS)
        )
        fill_zeros(parameters, scratch)
        blocks, part_tiles = (features + GRADIENT_BLOCK - 1) // GRADIENT_BLOCK, word(parameters, Gradient.PART_TILES)
        unit = lo
        while unit < hi:
            feature, part = unit % blocks * GRADIENT_BLOCK, unit // blocks
            run = min(hi - unit, blocks - unit % blocks)
            count = min(run * GRADIENT_BLOCK, features - feature)
            sums = word(parameters, Gradient.SUMS) + part * word(parameters, Gradient.PART_BYTES)
            sums += feature * word(parameters, Gradient.FEATURE_SUMS)
            first, end = part * part_tiles, min((part + 1) * part_tiles, word(parameters, Tiles.TILES))
            for tile in range(first, end, block):
                tiles = min(block, end - tile)
                transform_inputs(parameters, tile, tiles, feature, count, scratch)
                transform_gradients(parameters, tile, tiles, scratch)
                adds = 1 if tile > first else 0
                add_products(parameters, tiles, count, sums, adds, count_of_positions, scratch)
            unit += run

    name = codelet_name("winograd_gradient", tile_outputs, element_type)
    return Codelet(multiply_units, name, (library("f32"),), in_vectors=True)


winograd_gradient = gradient_of_tiles("f32")


@cache
def sums_of_taps(result_type: str, tile: int = OUTPUTS) -> Codelet:
    """Makes the `winograd_sums` whose taps have this type."""
    (transform, matrix, *_), count_of_positions = TRANSFORMS[tile].sums, positions(tile)
    transform_sums = transforming(transform, matrix, matrix, result_type)

    def sum_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        outputs, offsets = word(parameters, Sums.OUTPUTS), word(parameters, Sums.POSITIONS)
        added = scratch + word(parameters, Sums.ADDED)
        parts, count = word(parameters, Sums.PARTS), word(parameters, Sums.COUNT)
        for feature in range(lo, hi):
            source = word(parameters, Sums.SUMS) + feature * word(parameters, Sums.FEATURE_SUMS)
            for position in range(count_of_positions):
                target = added + load_i64(offsets + 8 * position)
                for column in range(0, outputs, LANES):
                    add_floats(source + 4 * column, parts, count, target + 4 * column, LANES)
                source += word(parameters, Sums.POSITION_SUMS)
            of_slice = word(parameters, Sums.SLICE_FEATURES)
            c = word(parameters, Sums.C) + feature // of_slice * word(parameters, Sums.SLICE_C)
            c += feature % of_slice * word(parameters, Sums.FEATURE_C)
            transform_sums(offsets, word(parameters, Sums.TAPS), added, c, outputs)

    return Codelet(sum_units, codelet_name("winograd_sums", tile, result_type), in_vectors=True)


winograd_sums = sums_of_taps("f32")
