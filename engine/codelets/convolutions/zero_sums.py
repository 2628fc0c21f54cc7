"""Sums of zeros in Winograd's convolutions, which are stored as 0, as a direct convolution's are.

Transforms mix all elements of a tile. So a sum whose elements or taps are all 0 is a rounding error of the tile's other
sums, for which relu may have the derivative 1. Outputs that read an element in common are looked at only if that is 0.
"""

from __future__ import annotations

from engine.codelets.convolutions.winograd_tiles import TiledImages, TiledPart, Tiles
from engine.codelets.language.build import inner
from engine.codelets.language.memory import load_i16, load_i32, load_i64, store_i16, store_i32, store_i64
from engine.codelets.language.record import Record, Table, word

MAGNITUDE_F32 = 0x7FFFFFFF_7FFFFFFF
MAGNITUDE_16 = 0x7FFF7FFF_7FFF7FFF


class TapBlock(Record):
    """Some neighbouring taps of a kernel, and the elements of an image that the outputs of a group read for them.

    A bit for each element of the group, row by row, fits in a word.
    """

    row: int  # of the element that the output at row 0, column 0 reads for the first tap; column likewise
    column: int
    rows: int  # that exist: other elements are zeros; columns likewise
    columns: int
    offset: int  # bytes from the image to row 0, column 0
    taps_down: int
    taps_across: int
    numbers: int  # offset of the taps' numbers in the table of all blocks


class ZeroSums(Record):
    """The taps of a convolution, and groups of outputs, which have an element in common if no tap is 0."""

    blocks: Table  # of TapBlock
    block_count: int
    numbers: Table  # of the taps of all blocks, in the kernel's flags
    tap_count: int
    flags: int  # offset of the kernel's flags [tap, unit], int32, from the transformed kernel: 0 for a unit of zeros
    flag_count: int  # of a tap
    is_exact: int  # whether sums of zeros are 0 by the transforms, if no tap is 0
    group_rows: int
    group_columns: int
    common: Table  # TapBlock of the common tap; its number of taps is 0 where groups have none
    last_row: int  # from where on groups have the common element of that row of outputs; last_column likewise
    last_column: int
    exponent: int  # the exponent's bits in an element: all of them are 1 if it is infinite or NaN
    patterns: int  # offset in scratch of bits for the taps of each block that are not 0


@inner
def has_nonzero(address: int, size: int, item: int) -> bool:
    """Whether one of some contiguous elements is neither 0 nor -0."""
    bits, begin = (MAGNITUDE_F32 if item == 4 else MAGNITUDE_16), 0
    if size >= 32:
        some = load_i64(address) | load_i64(address + 8) | load_i64(address + 16) | load_i64(address + 24)
        if some & bits != 0:
            return True
        begin = 32
    whole, total = size // 8 * 8, 0
    for i in range(begin, whole, 8):
        total |= load_i64(address + i)
    if size & 4:
        total |= load_i32(address + whole) & (bits >> 32)
    if size & 2:
        total |= load_i16(address + size - 2) & 0x7FFF
    return total & bits != 0


@inner
def read_flags(zeros: int, flags: int, scratch: int) -> int:
    """Stores the patterns of the taps that are not all 0; returns their number."""
    across, units, count = word(zeros, ZeroSums.GROUP_COLUMNS), word(zeros, ZeroSums.FLAG_COUNT), 0
    for number in range(word(zeros, ZeroSums.BLOCK_COUNT)):
        block, pattern = TapBlock.read(word(zeros, ZeroSums.BLOCKS), number), 0
        for tap in range(block.taps_down * block.taps_across):
            at = flags + 4 * units * load_i64(word(zeros, ZeroSums.NUMBERS) + 8 * (block.numbers + tap))
            end = at + 4 * units
            while at < end and load_i32(at) == 0:
                at += 4
            if at < end:
                width = across + block.taps_across - 1
                pattern |= 1 << (tap // block.taps_across * width + tap % block.taps_across)
                count += 1
        store_i64(scratch + word(zeros, ZeroSums.PATTERNS) + 8 * number, pattern)
    return count


@inner
def is_zero(images: int, image: int, block: TapBlock, row: int, column: int) -> bool:
    """Whether an element is 0 in all features, or does not exist."""
    if row < 0 or row >= block.rows or column < 0 or column >= block.columns:
        return True
    at = image + block.offset + row * word(images, TiledImages.ROW) + column * word(images, TiledImages.COLUMN)
    item = word(images, TiledImages.ITEM)
    return not has_nonzero(at, item * word(images, TiledImages.FEATURES), item)


@inner
def reads_zeros(
    images: int, image: int, block: TapBlock, pattern: int, place: tuple[int, int], group: tuple[int, int], width: int
) -> int:
    """Bits, by row and column, of the outputs of a group from `place` on that read only zeros for a block's taps."""
    (row, column), (down, across), elements, found = place, group, 0, 0
    pitch = width + block.taps_across - 1
    for i in range(down + block.taps_down - 1):
        for j in range(across + block.taps_across - 1):
            if is_zero(images, image, block, row + block.row + i, column + block.column + j):
                elements |= 1 << (i * pitch + j)
    for i in range(down):
        for j in range(across):
            if (elements >> (i * pitch + j)) & pattern == pattern:
                found |= 1 << (i * width + j)
    return found


@inner
def clear(output: int, images: int, exponent: int) -> None:
    """Stores 0 in the features of an output, except in infinite ones and NaN: taps are infinite or NaN there."""
    features = word(images, TiledImages.FEATURES)
    if word(images, TiledImages.ITEM) == 4:
        for i in range(features):
            value = load_i32(output + 4 * i)
            store_i32(output + 4 * i, value if value & exponent == exponent else 0)
    else:
        for i in range(features):
            half = load_i16(output + 2 * i)
            store_i16(output + 2 * i, half if half & exponent == exponent else 0)


@inner
def are_zeros(images: int, image: int, place: tuple[int, int], group: tuple[int, int]) -> bool:
    """Whether the outputs of a group are 0, as those of tiles of zeros."""
    (row, column), (down, across), item = place, group, word(images, TiledImages.ITEM)
    for i in range(row, row + down):
        for j in range(column, column + across):
            at = image + i * word(images, TiledImages.ROW) + j * word(images, TiledImages.COLUMN)
            if has_nonzero(at, item * word(images, TiledImages.FEATURES), item):
                return False
    return True


@inner
def clear_group(
    zeros: int,
    a: int,
    c: int,
    source: int,
    target: int,
    place: tuple[int, int],
    group: tuple[int, int],
    scratch: int,
) -> None:
    """Stores 0 in the outputs of a group that are sums of zeros."""
    (row, column), (down, across), width = place, group, word(zeros, ZeroSums.GROUP_COLUMNS)
    left, number = 0 if are_zeros(c, target, place, group) else -1, 0
    while left != 0 and number < word(zeros, ZeroSums.BLOCK_COUNT):
        block = TapBlock.read(word(zeros, ZeroSums.BLOCKS), number)
        pattern = load_i64(scratch + word(zeros, ZeroSums.PATTERNS) + 8 * number)
        left &= reads_zeros(a, source, block, pattern, place, group, width)
        number += 1
    for i in range(down if left != 0 else 0):
        for j in range(across):
            if (left >> (i * width + j)) & 1:
                at = target + (row + i) * word(c, TiledImages.ROW) + (column + j) * word(c, TiledImages.COLUMN)
                clear(at, c, word(zeros, ZeroSums.EXPONENT))


@inner
def clear_run(
    zeros: int,
    a: int,
    c: int,
    source: int,
    target: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    is_whole: bool,
    scratch: int,
) -> None:
    """Stores 0 in outputs of these rows and columns of an image that are sums of zeros."""
    common = TapBlock.read(word(zeros, ZeroSums.COMMON))
    item, step = word(a, TiledImages.ITEM), word(a, TiledImages.COLUMN)
    down, across = word(zeros, ZeroSums.GROUP_ROWS), word(zeros, ZeroSums.GROUP_COLUMNS)
    last_row, last_column = word(zeros, ZeroSums.LAST_ROW), word(zeros, ZeroSums.LAST_COLUMN)
    size, asks = item * word(a, TiledImages.FEATURES), is_whole and common.taps_down > 0
    for row in range(rows[0], rows[1], down):
        line = source + common.offset + (min(row, last_row) + common.row) * word(a, TiledImages.ROW)
        for column in range(columns[0], columns[1], across):
            at = line + (min(column, last_column) + common.column) * step
            if not asks or not has_nonzero(at, size, item):
                group = min(down, rows[1] - row), min(across, columns[1] - column)
                clear_group(zeros, a, c, source, target, (row, column), group, scratch)


@inner
def clear_zero_sums(parameters: int, zeros: int, tile: int, count: int, is_whole: bool, scratch: int) -> None:
    """Stores 0 in outputs of `count` tiles that are sums of zeros; if the kernel `is_whole`, no tap is 0."""
    row_tiles, image_rows = word(parameters, Tiles.ROW_TILES), word(parameters, Tiles.IMAGE_ROWS)
    row, column, tile_rows = tile // row_tiles, tile % row_tiles, word(parameters, Tiles.TILE_ROWS)
    a, c = parameters + 8 * Tiles.A, parameters + 8 * Tiles.C
    slices, whole = word(a, TiledImages.SLICES), TiledPart.read(word(c, TiledImages.PARTS))
    while count > 0:
        lines = min(count // row_tiles, image_rows - row % image_rows) if column == 0 else 0
        run, image = min(count, row_tiles - column), row // image_rows
        source = word(a, TiledImages.ARRAY) + image // slices * word(a, TiledImages.IMAGE)
        source += image % slices * word(a, TiledImages.SLICE)
        target = word(c, TiledImages.ARRAY) + image * word(c, TiledImages.IMAGE)
        first, begin = tile_rows * (row % image_rows), word(parameters, Tiles.TILE_COLUMNS) * column
        end = min(begin + word(parameters, Tiles.TILE_COLUMNS) * run, whole.columns)
        rows = first, min(first + tile_rows * max(1, lines), whole.rows)
        clear_run(zeros, a, c, source, target, rows, (begin, end), is_whole, scratch)
        count -= run * max(1, lines)
        row, column = row + max(1, lines), 0
