"""Gradients of convolutions by their kernels, by Winograd's transforms: 36 products in place of a tile's 144.

`winograd_gradient` transforms tiles of inputs and of the outputs' gradients, and sums their products over tiles,
separately for each position of a tile; `winograd_sums` adds the partial sums and transforms them to the taps.
"""

from __future__ import annotations

from engine.codelets.convolutions.cook_toom import GRADIENT_BLOCK
from engine.codelets.convolutions.overlap_add import add_floats
from engine.codelets.convolutions.winograd import fill_features, multiply_panel
from engine.codelets.convolutions.winograd_tiles import TiledImages, Tiles, fill_zeros, read_tiles
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.memory import call_code, load_i64
from engine.codelets.language.record import Address, Record, Table, word
from engine.codelets.products.micro_kernel import library
from engine.codelets.products.narrow_products import OF_FEATURES, VECTOR, narrow_products
from engine.codelets.products.pack import LANES, PANEL, fill_progression, packed_pitch
from engine.codelets.products.panel import NOTHING_AHEAD

multiply_vector = narrow_products(OF_FEATURES)
ROWS = 48
"""Features that are multiplied by all gradients at a time, whole micro-kernels: their sums are in few pages."""


class Gradient(Tiles):
    """Parameters of `winograd_gradient`; C holds the gradients of outputs.

    The transformed tiles of A are in scratch, [position, vector of features, tile, feature of the vector]. Partial sums
    are [share of the tiles, position, input feature, output feature].
    """

    features: int  # of A, of all parts, each of whole vectors if there are several
    group: int  # neighbouring features that exist, and as many with those of their last vector
    whole_group: int
    shifts: Table  # offsets of the transformed inputs for each part of the kernel
    shift_count: int
    shift_features: int  # that exist
    block_tiles: int  # tiles that are transformed and multiplied at a time
    sums: Address
    share_tiles: int
    share_bytes: int
    vector_a: int  # bytes between vectors of transformed inputs, and between positions
    position_a: int
    position_sums: int  # bytes between positions, and between input features
    feature_sums: int
    position_g: int  # bytes between positions of transformed gradients in scratch: packed panels of tiles
    inputs_at: int  # offsets in scratch, of transformed inputs, of tables, and of transformed gradients
    features_of_a: int
    k: int
    rows_of_sums: int
    gradients_at: int


class Sums(Record):
    """Parameters of `winograd_sums`. Unit: an input feature of a part of the kernel."""

    sums: Address
    c: Address
    addends: Table  # offsets of partial sums
    transform: Address = 0  # code of the sums' transform
    position_count: int
    tap_count: int  # of a part
    count: int
    outputs: int
    feature_sums: int
    feature_c: int
    features: int  # of a part
    parts: Table  # offsets of the sums of each part
    taps: Table  # [part, tap]: offsets in C; taps that do not exist have the first one's
    positions: Table  # offsets of positions of the sums, and of added sums in scratch
    places: Table
    added: int  # offset in scratch


@inner
def add_products(
    parameters: int, tiles: int, feature: int, features: int, sums: int, adds: int, positions: int, scratch: int
) -> None:
    """Multiplies transformed inputs and gradients, and stores or adds sums over tiles."""
    given = Gradient.read(parameters)
    for shift in range(given.shift_count):
        a, done = scratch + given.inputs_at + load_i64(given.shifts + 8 * shift), 0
        while done < features:
            group, at = (feature + done) // given.whole_group, (feature + done) % given.whole_group
            some = min(min(features - done, given.whole_group - at), ROWS)
            row, rows = shift * given.shift_features + group * given.group + at, min(some, given.group - at)
            c, vectors = sums + row * given.feature_sums, a + done // LANES * given.vector_a
            add_features(parameters, tiles, rows, vectors, c, adds, positions, scratch)
            done += some


@inner
def add_features(
    parameters: int, tiles: int, features: int, a: int, sums: int, adds: int, positions: int, scratch: int
) -> None:
    """Adds the products of some features of inputs, positions one by one."""
    outputs = word(parameters + 8 * Gradient.C, TiledImages.FEATURES)
    rows, k = scratch + word(parameters, Gradient.FEATURES_OF_A), scratch + word(parameters, Gradient.K)
    rows_of_sums, b = (
        scratch + word(parameters, Gradient.ROWS_OF_SUMS),
        scratch + word(parameters, Gradient.GRADIENTS_AT),
    )
    pitch, has_gaps = word(parameters, Gradient.FEATURE_SUMS), word(parameters, Gradient.SHIFT_COUNT) > 1
    for _ in range(positions):
        for column in range(0, outputs, PANEL):
            width = min(PANEL, outputs - column)
            panel, c = b + 4 * column * tiles, sums + 4 * column
            if width != LANES or features % LANES != 0 or has_gaps:
                packed, ahead = (panel, packed_pitch(width)), (NOTHING_AHEAD, NOTHING_AHEAD)
                multiply_panel(features, width, tiles, (a, rows, k), packed, *ahead, c, rows_of_sums, adds)
            else:
                for feature in range(0, features, LANES):
                    vector = a + feature // LANES * word(parameters, Gradient.VECTOR_A)
                    multiply_vector(LANES, tiles, vector, 0, panel, c + feature * pitch, pitch, adds)
        a += word(parameters, Gradient.POSITION_A)
        b += word(parameters, Gradient.POSITION_G)
        sums += word(parameters, Gradient.POSITION_SUMS)


@inner
def transform_gradients(parameters: int, tile: int, count: int, scratch: int) -> None:
    """Transforms the gradients of `count` tiles' outputs to packed panels; outputs that do not exist are zeros."""
    images, size = parameters + 8 * Gradient.C, word(parameters, Gradient.POSITION_G)
    for feature in range(0, word(images, TiledImages.FEATURES), PANEL):
        width = min(PANEL, word(images, TiledImages.FEATURES) - feature)
        target = scratch + word(parameters, Gradient.GRADIENTS_AT) + 4 * feature * count
        pitches = packed_pitch(width), VECTOR, size
        read_tiles(parameters, images, (0, 0), tile, count, feature, width, target, pitches, 0, scratch)


def _winograd_gradient(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Unit: GRADIENT_BLOCK input features of a share of the tiles. Neighbouring features are computed together."""
    given, images = Gradient.read(parameters), parameters + 8 * Gradient.A
    features, block = given.features, given.block_tiles
    most, places = min(features, ROWS), scratch + given.k
    fill_features(scratch + given.features_of_a, most, given.vector_a, 0)
    fill_progression(scratch + given.rows_of_sums, most, given.feature_sums)
    fill_zeros(parameters, scratch)
    blocks, share_tiles = (features + GRADIENT_BLOCK - 1) // GRADIENT_BLOCK, given.share_tiles
    inputs, pitches = scratch + given.inputs_at, (VECTOR, given.vector_a, given.position_a)
    further = given.below, given.beside
    unit = lo
    while unit < hi:
        feature, share = unit % blocks * GRADIENT_BLOCK, unit // blocks
        run = min(hi - unit, blocks - unit % blocks)
        count = min(run * GRADIENT_BLOCK, features - feature)
        sums = given.sums + share * given.share_bytes
        first, end = share * share_tiles, min((share + 1) * share_tiles, given.tiles)
        for tile in range(first, end, block):
            tiles = min(block, end - tile)
            read_tiles(parameters, images, further, tile, tiles, feature, count, inputs, pitches, places, scratch)
            transform_gradients(parameters, tile, tiles, scratch)
            adds = 1 if tile > first else 0
            add_products(parameters, tiles, feature, count, sums, adds, given.positions, scratch)
        unit += run


winograd_gradient = Codelet(_winograd_gradient, "winograd_gradient", (library("f32"),), in_vectors=True)


def _winograd_sums(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Adds the partial sums of units lo <= unit < hi, and transforms them to taps."""
    given = Sums.read(parameters)
    added = scratch + given.added
    for unit in range(lo, hi):
        part, feature = unit // given.features, unit % given.features
        source = given.sums + load_i64(given.parts + 8 * part) + feature * given.feature_sums
        c, to = given.c + feature * given.feature_c, given.taps + 8 * part * given.tap_count
        if given.count == 1:
            call_code(given.transform, given.positions, to, source, c, given.outputs)
            continue
        for position in range(given.position_count):
            first, target = (
                source + load_i64(given.positions + 8 * position),
                added + load_i64(given.places + 8 * position),
            )
            for column in range(0, given.outputs, LANES):
                add_floats(first + 4 * column, given.addends, given.count, target + 4 * column, LANES)
        call_code(given.transform, given.places, to, added, c, given.outputs)


winograd_sums = Codelet(_winograd_sums, "winograd_sums", in_vectors=True)
