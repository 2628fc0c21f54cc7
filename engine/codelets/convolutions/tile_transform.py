"""Linear transforms of tiles of arrays with contiguous features, along rows and columns: `winograd_tiles`.

Element (p, q) of phase (f, g) of tile (i, j) of an image is at image * z + tile_row * i + tile_column * j +
row * (first_row + apart_row * p) + column * (first_column + apart_column * q) + phase_row * f + phase_column * g bytes.
It exists if step_row * i + first_row + apart_row * p + between * f is one of the array's rows, and likewise its column;
others are read as zeros, and are not written. All phases of a tile have the same transform.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from engine.codelets.convolutions import cook_toom
from engine.codelets.convolutions.cook_toom import Matrix, TileAxis
from engine.codelets.convolutions.linear_forms import applied
from engine.codelets.host.rows import word
from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, Inner, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, POINTER, load_i64, store_f32, store_i64
from engine.codelets.language.record import Address, Record
from engine.codelets.language.scratch import ScratchSpace, after, space_of
from engine.codelets.language.switched import outlined
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()


class Tiled(Record):
    """An array of tiles: its address, bytes between images, tiles, elements and phases, and which elements exist."""

    array: Address
    image: int
    tile_row: int
    tile_column: int
    row: int
    column: int
    step_row: int
    step_column: int
    first_row: int
    first_column: int
    rows: int
    columns: int
    apart_row: int
    apart_column: int
    phase_row: int
    phase_column: int
    between: int


class Transform(Record):
    """Parameters. Unit: `unit_rows` rows of tiles, counted through all images."""

    source: Tiled
    target: Tiled
    images: int
    tile_rows: int
    tile_columns: int
    features: int
    unit_rows: int
    phase_rows: int
    phase_columns: int


def transform_scratch(features: int) -> ScratchSpace:
    """The scratch: offsets of elements to read and to write, two tables of addresses, zeros, and discarded elements."""
    return space_of(*4 * (8 * MOST_ELEMENTS,), 4 * features, 4 * features)


MOST_ELEMENTS = 64
"""Most elements of a tile."""


def matrix_of(axis: TileAxis, kind: str) -> Matrix:
    """The matrix of a transform along a dimension.

    `kind`: "inputs" (B'), "taps" (G), "products" (A'), "gradients" (A) or "sums" (G').
    """
    if axis.side == 1:
        return cook_toom.IDENTITY
    if kind == "inputs":
        return cook_toom.of_inputs(axis.side)
    if kind in ("taps", "sums"):
        taps = cook_toom.of_taps(axis.side, axis.taps)
        return taps if kind == "taps" else cook_toom.transposed(taps)
    products = cook_toom.of_products(axis.side, axis.outputs)
    return products if kind == "products" else cook_toom.transposed(products)


def _transforming(name: str, rows: Matrix, columns: Matrix) -> Inner:
    """The function that transforms all features of a tile, with addresses of elements from two tables."""
    whole, rest = (_intrinsic(name, rows, columns, masked) for masked in (False, True))

    @inner
    def transform_features(sources: int, targets: int, read: int, written: int, features: int) -> None:
        vectors = features // LANES
        if vectors > 0:
            whole(sources, targets, read, written, vectors)
        if features % LANES != 0:
            rest(sources, targets, read + 4 * LANES * vectors, written + 4 * LANES * vectors, features % LANES)

    return transform_features


def _intrinsic(name: str, rows: Matrix, columns: Matrix, masked: bool) -> Any:
    """The intrinsic for a number of whole vectors, or for some lanes of one."""

    @intrinsic
    def transform_vectors(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        outlined(builder, name + "_masked" * masked, partial(_write, rows, columns, masked), arguments)

    return transform_vectors


def _write(rows: Matrix, columns: Matrix, masked: bool, builder: ir.IRBuilder, *arguments: ir.Value) -> None:
    """Writes the function of a transform."""
    sources, targets, read, written, count = arguments
    mask = vector.lane_mask(builder, count) if masked else None
    end = I64(4 * LANES) if masked else builder.mul(count, I64(4 * LANES))
    loop = EmittedLoop(builder, "vectors", I64(0), end, I64(4 * LANES))
    read, written = builder.add(read, loop.at), builder.add(written, loop.at)
    height, width = len(rows[0]), len(columns[0])
    across = []
    for column in range(width):
        places = [_address(builder, sources, width * row + column) for row in range(height)]
        loaded = [vector.load_vector(builder, builder.add(each, read), mask) for each in places]
        across.append(applied(builder, rows, loaded))
    for row in range(len(rows)):
        for column, value in enumerate(applied(builder, columns, [each[row] for each in across])):
            address = _address(builder, targets, len(columns) * row + column)
            vector.store_vector(builder, value, builder.add(address, written), mask)
    loop.close()


def _address(builder: ir.IRBuilder, table: ir.Value, number: int) -> ir.Value:
    return builder.load(builder.inttoptr(builder.add(table, I64(8 * number)), POINTER), align=8, typ=I64)


@inner
def fill_offsets(tiled: int, height: int, width: int, table: int) -> None:
    """Fills a table with the offsets of a tile's elements from the first one, row by row."""
    pitch = word(tiled, Tiled.APART_ROW) * word(tiled, Tiled.ROW)
    step = word(tiled, Tiled.APART_COLUMN) * word(tiled, Tiled.COLUMN)
    for p in range(height):
        for q in range(width):
            store_i64(table + 8 * (width * p + q), p * pitch + q * step)


@inner
def fill_addresses(
    tiled: int, at: int, row: int, column: int, height: int, width: int, outside: int, offsets: int, table: int
) -> None:
    """Fills a table with addresses of a tile's elements, row by row; elements that do not exist are at `outside`."""
    apart_row, apart_column = word(tiled, Tiled.APART_ROW), word(tiled, Tiled.APART_COLUMN)
    rows, columns = word(tiled, Tiled.ROWS), word(tiled, Tiled.COLUMNS)
    for p in range(height):
        inside = 0 <= row + apart_row * p and row + apart_row * p < rows
        for q in range(width):
            there = column + apart_column * q
            exists = inside and 0 <= there and there < columns
            store_i64(table + 8 * q, at + load_i64(offsets + 8 * q) if exists else outside)
        table += 8 * width
        offsets += 8 * width


@inner
def has_all(tiled: int, row: int, column: int, height: int, width: int) -> bool:
    """Whether all elements of a tile exist."""
    last_row = row + word(tiled, Tiled.APART_ROW) * (height - 1)
    last_column = column + word(tiled, Tiled.APART_COLUMN) * (width - 1)
    high = last_row < word(tiled, Tiled.ROWS) and last_column < word(tiled, Tiled.COLUMNS)
    return row >= 0 and column >= 0 and high


@inner
def first_row(tiled: int, tile_row: int, f: int) -> int:
    """The row of a tile's first element in a phase."""
    return tile_row * word(tiled, Tiled.STEP_ROW) + word(tiled, Tiled.FIRST_ROW) + f * word(tiled, Tiled.BETWEEN)


@inner
def first_column(tiled: int, tile_column: int, g: int) -> int:
    """The position of a tile's first column, in phase `g`."""
    at = tile_column * word(tiled, Tiled.STEP_COLUMN) + word(tiled, Tiled.FIRST_COLUMN)
    return at + g * word(tiled, Tiled.BETWEEN)


@inner
def first_address(tiled: int, image: int, tile_row: int, tile_column: int, f: int, g: int) -> int:
    """The address of a tile's first element, in phases `f` and `g`."""
    at = word(tiled, Tiled.ARRAY) + image * word(tiled, Tiled.IMAGE) + tile_row * word(tiled, Tiled.TILE_ROW)
    at += tile_column * word(tiled, Tiled.TILE_COLUMN) + word(tiled, Tiled.FIRST_ROW) * word(tiled, Tiled.ROW)
    at += word(tiled, Tiled.FIRST_COLUMN) * word(tiled, Tiled.COLUMN)
    return at + f * word(tiled, Tiled.PHASE_ROW) + g * word(tiled, Tiled.PHASE_COLUMN)


@cache
def tile_transform(kind: str, row_axis: TileAxis, column_axis: TileAxis) -> Codelet:
    """The codelet `winograd_tiles` of a kind that `matrix_of` takes."""
    rows, columns = matrix_of(row_axis, kind), matrix_of(column_axis, kind)
    name = f"winograd_tiles_{kind}_{row_axis.name}_{column_axis.name}"
    transform_features = _transforming(name, rows, columns)
    height, width, results, wide = len(rows[0]), len(columns[0]), len(rows), len(columns)

    @inner
    def transform_tile(
        source: int, target: int, image: int, i: int, j: int, f: int, g: int, scratch: int, features: int
    ) -> None:
        to_read, to_write = scratch, after(scratch, 8 * MOST_ELEMENTS)
        sources = after(to_write, 8 * MOST_ELEMENTS)
        targets = after(sources, 8 * MOST_ELEMENTS)
        zeros = after(targets, 8 * MOST_ELEMENTS)
        read, written = first_address(source, image, i, j, f, g), first_address(target, image, i, j, f, g)
        row, column = first_row(source, i, f), first_column(source, j, g)
        if not has_all(source, row, column, height, width):
            fill_addresses(source, read, row, column, height, width, zeros, to_read, sources)
            to_read, read = sources, 0
        row, column = first_row(target, i, f), first_column(target, j, g)
        if not has_all(target, row, column, results, wide):
            dropped = after(zeros, 4 * features)
            fill_addresses(target, written, row, column, results, wide, dropped, to_write, targets)
            to_write, written = targets, 0
        transform_features(to_read, to_write, read, written, features)

    def transform_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        scratch += RESERVED_SCRATCH
        features, to_write = word(parameters, Transform.FEATURES), after(scratch, 8 * MOST_ELEMENTS)
        zeros = after(after(after(to_write, 8 * MOST_ELEMENTS), 8 * MOST_ELEMENTS), 8 * MOST_ELEMENTS)
        for i in range(features):
            store_f32(zeros + 4 * i, 0.0)
        source, target = parameters + 8 * Transform.SOURCE, parameters + 8 * Transform.TARGET
        fill_offsets(source, height, width, scratch)
        fill_offsets(target, results, wide, to_write)
        tile_rows, unit_rows = word(parameters, Transform.TILE_ROWS), word(parameters, Transform.UNIT_ROWS)
        phase_rows, phase_columns = word(parameters, Transform.PHASE_ROWS), word(parameters, Transform.PHASE_COLUMNS)
        for row in range(lo * unit_rows, min(hi * unit_rows, word(parameters, Transform.IMAGES) * tile_rows)):
            image, i = row // tile_rows, row % tile_rows
            for j in range(word(parameters, Transform.TILE_COLUMNS)):
                for f in range(phase_rows):
                    for g in range(phase_columns):
                        transform_tile(source, target, image, i, j, f, g, scratch, features)

    return Codelet(transform_units, name, in_vectors=True)
