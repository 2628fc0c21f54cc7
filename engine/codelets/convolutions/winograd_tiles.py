"""Tiles of images that Winograd's convolutions transform, numbered by image, row and column.

A tile has several parts if products sum over slices of an image with depth, or over phases of the inputs of a strided
convolution. A kernel of several parts also reads tiles further on, below and beside a tile.
"""

from __future__ import annotations

from engine.codelets.language.build import inner
from engine.codelets.language.memory import call_code, store_i64
from engine.codelets.language.record import Address, Record, Table, word
from engine.machine_code.processor import lanes

LANES = lanes()


class TiledPart(Record):
    """The elements that tiles of one part read, from `offset` bytes of an image on."""

    offset: int
    first_row: int  # of the first tile; first_column likewise
    first_column: int
    rows: int  # that exist: other rows of a tile are zeros, and so are other columns
    columns: int


class TiledImages(Record):
    """Images of contiguous features, as tiles read and write them."""

    array: Address
    transform: Address = 0  # code that reads runs of tiles, or writes them
    height: int  # rows of a tile's elements
    item: int  # bytes of an element
    features: int  # of each part
    image: int  # bytes between images, and between rows and columns of a tile's elements
    row: int
    column: int
    slices: int  # of outputs of an image, if it has depth: tiles count them as images
    slice: int  # bytes between slices
    parts: Table  # of TiledPart


class Tiles(Record):
    """Tiles that are read from images A; C are the images that are written, or their gradients."""

    a: TiledImages
    c: TiledImages
    tile_rows: int  # of outputs, and columns
    tile_columns: int
    positions: int  # of a transformed tile
    tiles: int
    image_rows: int  # rows of tiles of an image
    row_tiles: int
    below: int  # rows of tiles further on that are read, and columns
    beside: int
    width: int  # tiles between rows of transformed tiles, if rows below are read
    rows: int  # offsets in scratch: a tile's table of rows, and a row of zeros
    zeros: int
    zero_bytes: int


@inner
def fill_zeros(parameters: int, scratch: int) -> None:
    """Writes the zeros that stand for rows of tiles outside of an image."""
    zeros = scratch + word(parameters, Tiles.ZEROS)
    for i in range(0, word(parameters, Tiles.ZERO_BYTES), 8):
        store_i64(zeros + i, 0)


@inner
def fill_rows(table: int, source: int, zeros: int, row: int, rows: int, extent: int, pitch: int) -> None:
    """Fills the table of `rows` rows from `row` on; rows that are not 0 <= row < `extent` are at `zeros`."""
    for i in range(row, row + rows):
        store_i64(table, source + i * pitch if 0 <= i and i < extent else zeros)
        table += 8


@inner
def read_run(
    parameters: int,
    images: int,
    image: int,
    place: tuple[int, int],
    run: int,
    feature: int,
    features: int,
    target: int,
    pitches: tuple[int, int, int],
    scratch: int,
) -> None:
    """Transforms some features of a run of tiles, from the tile at the row and column `place` on."""
    (row, column), (tile, vector, position) = place, pitches
    item, tile_rows = word(images, TiledImages.ITEM), word(parameters, Tiles.TILE_ROWS)
    transform, height = word(images, TiledImages.TRANSFORM), word(images, TiledImages.HEIGHT)
    table, of_part = scratch + word(parameters, Tiles.ROWS), word(images, TiledImages.FEATURES)
    pitch, step = word(images, TiledImages.ROW), word(images, TiledImages.COLUMN)
    whole, done = (of_part + LANES - 1) // LANES * LANES, 0
    while done < features:
        at = (feature + done) % whole
        part = TiledPart.read(word(images, TiledImages.PARTS), (feature + done) // whole)
        some = min(features - done, whole - at)
        source, first = image + part.offset + item * at, part.first_row + tile_rows * row
        begin, into = part.first_column + word(parameters, Tiles.TILE_COLUMNS) * column, target + done // LANES * vector
        zeros = scratch + word(parameters, Tiles.ZEROS) - max(0, begin) * step
        if step < 0:
            zeros += word(parameters, Tiles.ZERO_BYTES) - item * of_part
        fill_rows(table, source, zeros, first, height, part.rows, pitch)
        ahead = tile_rows * pitch
        count = min(some, of_part - at)
        call_code(transform, table, step, begin, part.columns, run, into, tile, vector, position, ahead, count)
        done += some


@inner
def read_tiles(
    parameters: int,
    images: int,
    further: tuple[int, int],
    tile: int,
    count: int,
    feature: int,
    features: int,
    target: int,
    pitches: tuple[int, int, int],
    places: int,
    scratch: int,
) -> None:
    """Transforms some features of `count` tiles, and of `further` rows and columns of tiles below and beside them.

    `pitches` are the bytes between tiles, vectors and positions of the target. Features count all parts, each of
    whole vectors. The table `places`, if it is not 0, gets the offset of each tile. Rows of tiles whose next row
    follows are transformed once.
    """
    row_tiles, image_rows = word(parameters, Tiles.ROW_TILES), word(parameters, Tiles.IMAGE_ROWS)
    row, column, slices = tile // row_tiles, tile % row_tiles, word(images, TiledImages.SLICES)
    (below, beside), done, begin, follows = further, 0, 0, False
    while done < count:
        run = min(count - done, row_tiles - column)
        width = (word(parameters, Tiles.WIDTH) if below > 0 else run + beside) * pitches[0]
        number, first = row // image_rows, 0
        if follows and row % image_rows > 0:
            begin, first = begin - below * width, below
        image = word(images, TiledImages.ARRAY) + number // slices * word(images, TiledImages.IMAGE)
        image += number % slices * word(images, TiledImages.SLICE)
        for each in range(first, below + 1):
            place, into = (row % image_rows + each, column), target + begin + each * width
            read_run(parameters, images, image, place, run + beside, feature, features, into, pitches, scratch)
        for i in range(run if places != 0 else 0):
            store_i64(places + 8 * (done + i), begin + i * pitches[0])
        begin += (below + 1) * width
        follows = run == row_tiles
        done += run
        row, column = row + 1, 0
