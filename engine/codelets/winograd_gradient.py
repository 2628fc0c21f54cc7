"""Gradients of 3 x 3 convolutions by their kernels, by Winograd's transforms: 16 products for the 36 of a tile.

`winograd_gradient` transforms tiles of inputs and of the outputs' gradients, and sums their products over tiles, apart
for each position of a tile; `winograd_sums` adds the partial sums and transforms them to the taps.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.build import Codelet, Inner, inner
from engine.codelets.memory import load_i64
from engine.codelets.micro_kernel import library
from engine.codelets.narrow_products import OF_FEATURES, VECTOR, narrow_products
from engine.codelets.overlap_add import add_floats
from engine.codelets.pack import LANES, PANEL, fill_progression, packed_pitch
from engine.codelets.record import Address, Record, Table
from engine.codelets.rows import word
from engine.codelets.vector import BYTES
from engine.codelets.winograd import Tiles, fill_features, fill_rows, fill_zeros, input_transforms, multiply_panel
from engine.codelets.winograd_runs import reading_runs
from engine.codelets.winograd_sizes import GRADIENT_BLOCK, OUTPUTS, POSITIONS
from engine.codelets.winograd_transforms import GRADIENT, SUMS, transforming

multiply_vector = narrow_products(OF_FEATURES)


class Gradient(Tiles):
    """Parameters of `winograd_gradient`; C has the gradients of outputs.

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
    slice_features: int  # of each slice of inputs that one of outputs reads
    slice_c: int  # bytes between their taps
    taps: Table  # [9]: offsets in C
    positions: Table  # [16]: offsets of added sums in scratch
    added: int  # offset in scratch


@cache
def _gradient_transforms(element_type: str) -> Inner:
    transform_gradient, item = reading_runs(GRADIENT, element_type), BYTES[element_type]

    @inner
    def transform_gradients(parameters: int, tile: int, count: int, scratch: int) -> None:
        """Transforms the gradients of `count` tiles' outputs to packed panels; outputs that do not exist have zeros."""
        row_tiles, image_rows = word(parameters, Tiles.ROW_TILES), word(parameters, Tiles.IMAGE_ROWS)
        row, column, table = tile // row_tiles, tile % row_tiles, scratch + word(parameters, Tiles.ROWS)
        outputs, size, done = word(parameters, Tiles.OUTPUTS), word(parameters, Gradient.POSITION_G), 0
        while done < count:
            run = min(count - done, row_tiles - column)
            image = word(parameters, Tiles.C) + row // image_rows * word(parameters, Tiles.IMAGE_C)
            first, extent = OUTPUTS * (row % image_rows), word(parameters, Tiles.ROWS_C)
            for feature in range(0, outputs, PANEL):
                width = min(PANEL, outputs - feature)
                pitch, stride = packed_pitch(width), word(parameters, Tiles.ROW_C)
                target = scratch + word(parameters, Gradient.GRADIENTS_AT) + 4 * feature * count + done * pitch
                step, columns = word(parameters, Tiles.COLUMN_C), word(parameters, Tiles.COLUMNS_C)
                fill_rows(parameters, table, image + item * feature, first, OUTPUTS, extent, stride, step)
                transform_gradient(
                    table, OUTPUTS * column, columns, run, target, pitch, VECTOR, size, OUTPUTS * stride, width
                )
            done += run
            row, column = row + 1, 0

    return transform_gradients


@inner
def add_products(parameters: int, tiles: int, features: int, sums: int, adds: int, scratch: int) -> None:
    """Multiplies transformed inputs and gradients, position by position, and stores or adds the sums over tiles."""
    outputs = word(parameters, Tiles.OUTPUTS)
    rows, k = scratch + word(parameters, Gradient.FEATURES_OF_A), scratch + word(parameters, Gradient.K)
    rows_of_sums = scratch + word(parameters, Gradient.ROWS_OF_SUMS)
    a, b = scratch + word(parameters, Tiles.INPUTS_AT), scratch + word(parameters, Gradient.GRADIENTS_AT)
    pitch = word(parameters, Gradient.FEATURE_SUMS)
    for _ in range(POSITIONS):
        for column in range(0, outputs, PANEL):
            width = min(PANEL, outputs - column)
            panel, c = b + 4 * column * tiles, sums + 4 * column
            if width != LANES or features % LANES != 0:
                multiply_panel(
                    features, width, tiles, (a, rows, k), (panel, packed_pitch(width)), c, rows_of_sums, adds
                )
            else:
                for feature in range(0, features, LANES):
                    vector = a + feature // LANES * word(parameters, Tiles.VECTOR_A)
                    multiply_vector(LANES, tiles, vector, 0, panel, c + feature * pitch, pitch, adds)
        a += word(parameters, Tiles.POSITION_A)
        b += word(parameters, Gradient.POSITION_G)
        sums += word(parameters, Gradient.POSITION_SUMS)


@cache
def gradient_of_tiles(element_type: str) -> Codelet:
    """`winograd_gradient` of images and gradients of that type."""
    transform_inputs, transform_gradients = input_transforms(element_type), _gradient_transforms(element_type)

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
                add_products(parameters, tiles, count, sums, 1 if tile > first else 0, scratch)
            unit += run

    name = "winograd_gradient" + f"_{element_type}" * (element_type != "f32")
    return Codelet(multiply_units, name, (library("f32"),), in_vectors=True)


winograd_gradient = gradient_of_tiles("f32")


@cache
def sums_of_taps(result_type: str) -> Codelet:
    """`winograd_sums` to taps of that type."""
    transform_sums = transforming(SUMS, result_type)

    def sum_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        outputs, positions = word(parameters, Sums.OUTPUTS), word(parameters, Sums.POSITIONS)
        added = scratch + word(parameters, Sums.ADDED)
        parts, count = word(parameters, Sums.PARTS), word(parameters, Sums.COUNT)
        for feature in range(lo, hi):
            source = word(parameters, Sums.SUMS) + feature * word(parameters, Sums.FEATURE_SUMS)
            for position in range(POSITIONS):
                target = added + load_i64(positions + 8 * position)
                for column in range(0, outputs, LANES):
                    add_floats(source + 4 * column, parts, count, target + 4 * column, LANES)
                source += word(parameters, Sums.POSITION_SUMS)
            of_slice = word(parameters, Sums.SLICE_FEATURES)
            c = word(parameters, Sums.C) + feature // of_slice * word(parameters, Sums.SLICE_C)
            c += feature % of_slice * word(parameters, Sums.FEATURE_C)
            transform_sums(added, positions, c, word(parameters, Sums.TAPS), outputs)

    return Codelet(sum_units, "winograd_sums" + f"_{result_type}" * (result_type != "f32"), in_vectors=True)


winograd_sums = sums_of_taps("f32")
