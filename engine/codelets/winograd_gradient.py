"""Gradients of 3 x 3 convolutions by their kernels, by Winograd's transforms: 16 products for the 36 of a tile.

`winograd_gradient` transforms tiles of inputs and of the outputs' gradients, and sums their products over tiles, apart
for each position of a tile; `winograd_sums` adds the partial sums and transforms them to the taps.
"""

from __future__ import annotations

from engine.codelets.build import Codelet, inner
from engine.codelets.memory import load_i64, store_f32, store_i64
from engine.codelets.micro_kernel import library
from engine.codelets.overlap_add import add_floats
from engine.codelets.pack import LANES, PANEL, fill_progression, packed_pitch
from engine.codelets.record import Address, Record, Table
from engine.codelets.rows import word
from engine.codelets.winograd import Tiles, multiply_panel, prefetch_inputs, prefetch_outputs, transform_inputs
from engine.codelets.winograd_sizes import GRADIENT_BLOCK, OFFSETS, OUTPUTS, POSITIONS
from engine.codelets.winograd_transforms import GRADIENT, SUMS, transforming

transform_gradient, transform_sums = transforming(GRADIENT), transforming(SUMS)


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
    positions_g: Table  # [16]
    gradients: Table  # [4]: gradients of a tile
    edge: int  # offsets in scratch: of gradients of a tile at an edge, of tables, zeros, and transformed gradients
    rows: int
    k: int
    rows_of_sums: int
    zeros: int
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
    taps: Table  # [9]: offsets in C
    positions: Table  # [16]: offsets of added sums in scratch
    added: int  # offset in scratch


@inner
def transform_gradients(parameters: int, tile: int, count: int, scratch: int) -> None:
    """Transforms the gradients of `count` tiles' outputs to packed panels; outputs that do not exist have zeros."""
    image_tiles, outputs = word(parameters, Tiles.IMAGE_TILES), word(parameters, Tiles.OUTPUTS)
    number, c = tile % image_tiles, word(parameters, Tiles.C)
    c += tile // image_tiles * word(parameters, Tiles.IMAGE_C)
    zeros, edge = scratch + word(parameters, Gradient.ZEROS), scratch + word(parameters, Gradient.EDGE)
    for i in range(count):
        at = word(parameters, Tiles.OFFSETS) + 8 * OFFSETS * number
        source, kind, offsets = c + load_i64(at + 8), load_i64(at + 16), word(parameters, Gradient.GRADIENTS)
        if kind != 0:
            for j in range(OUTPUTS * OUTPUTS):
                store_i64(edge + 8 * j, zeros - source if kind & j != 0 else load_i64(offsets + 8 * j))
            offsets = edge
        for column in range(0, outputs, PANEL):
            width = min(PANEL, outputs - column)
            target = scratch + word(parameters, Gradient.GRADIENTS_AT) + 4 * column * count + i * packed_pitch(width)
            transform_gradient(source + 4 * column, offsets, target, word(parameters, Gradient.POSITIONS_G), width)
        number += 1
        if number == image_tiles:
            number, c = 0, c + word(parameters, Tiles.IMAGE_C)


@inner
def add_products(
    parameters: int, tile: int, tiles: int, following: int, features: int, sums: int, adds: int, scratch: int
) -> None:
    """Multiplies transformed inputs and gradients, position by position, and stores or adds the sums over tiles.

    Meanwhile it prefetches the `following` tiles.
    """
    outputs = word(parameters, Tiles.OUTPUTS)
    rows, k = scratch + word(parameters, Gradient.ROWS), scratch + word(parameters, Gradient.K)
    rows_of_sums = scratch + word(parameters, Gradient.ROWS_OF_SUMS)
    a, b = scratch + word(parameters, Tiles.INPUTS_AT), scratch + word(parameters, Gradient.GRADIENTS_AT)
    share, done = (tiles + POSITIONS - 1) // POSITIONS, 0
    for _ in range(POSITIONS):
        prefetch_inputs(parameters, tile + tiles + done, min(share, following - done))
        prefetch_outputs(
            parameters, tile + tiles + done, min(share, following - done), word(parameters, Gradient.GRADIENTS)
        )
        done += share
        for column in range(0, outputs, PANEL):
            width = min(PANEL, outputs - column)
            panel = b + 4 * column * tiles, packed_pitch(width)
            multiply_panel(features, width, tiles, (a, rows, k), panel, sums + 4 * column, rows_of_sums, adds)
        a += word(parameters, Tiles.POSITION_A)
        b += word(parameters, Gradient.POSITION_G)
        sums += word(parameters, Gradient.POSITION_SUMS)


def _winograd_gradient(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Unit: GRADIENT_BLOCK input features of a part of the tiles. Neighbouring features are computed together."""
    features, block = word(parameters, Tiles.FEATURES), word(parameters, Tiles.BLOCK_TILES)
    fill_progression(scratch + word(parameters, Gradient.ROWS), features, 4)
    fill_progression(scratch + word(parameters, Gradient.K), block, word(parameters, Tiles.TILE_A))
    fill_progression(
        scratch + word(parameters, Gradient.ROWS_OF_SUMS), features, word(parameters, Gradient.FEATURE_SUMS)
    )
    for i in range(word(parameters, Tiles.OUTPUTS)):
        store_f32(scratch + word(parameters, Gradient.ZEROS) + 4 * i, 0.0)
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
            following, adds = min(block, end - tile - tiles), 1 if tile > first else 0
            add_products(parameters, tile, tiles, following, count, sums, adds, scratch)
        unit += run


winograd_gradient = Codelet(_winograd_gradient, "winograd_gradient", (library("f32"),), in_vectors=True)


def _winograd_sums(parameters: int, lo: int, hi: int, scratch: int) -> None:
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
        c = word(parameters, Sums.C) + feature * word(parameters, Sums.FEATURE_C)
        transform_sums(added, positions, c, word(parameters, Sums.TAPS), outputs)


winograd_sums = Codelet(_winograd_sums, "winograd_sums", in_vectors=True)
