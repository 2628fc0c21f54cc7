"""Linear transforms of tiles of arrays with contiguous features, along rows and columns: `winograd_tiles`.

Element (p, q) of tile (i, j) of an image is at image * z + tile_row * i + tile_column * j + row * (first_row + p) +
column * (first_column + q) bytes. It exists if step_row * i + first_row + p is one of the array's rows, and likewise
its column; others are read as zeros, and are not written.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets import cook_toom, vector
from engine.codelets.build import Codelet, Inner, inner
from engine.codelets.cook_toom import Matrix
from engine.codelets.lazy import types
from engine.codelets.linear_forms import applied
from engine.codelets.loops import Loop
from engine.codelets.memory import I64, POINTER, Emitter, intrinsic, store_f32, store_i64
from engine.codelets.record import Address, Record
from engine.codelets.rows import word
from engine.codelets.switched import internal_function
from engine.codelets.tile_sizes import Axis
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()


class Tiled(Record):
    """An array of tiles: its address, bytes between images, tiles and elements, and which elements exist."""

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


class Transform(Record):
    """Parameters. Unit: `unit_rows` rows of tiles, counted through all images."""

    source: Tiled
    target: Tiled
    images: int
    tile_rows: int
    tile_columns: int
    features: int
    unit_rows: int


def transform_scratch_bytes(features: int) -> int:
    """The bytes of scratch: tables of addresses, zeros to be read, and space for what is not to be kept."""
    return RESERVED_SCRATCH + 2 * 8 * MOST_ELEMENTS + 2 * 4 * (features + LANES)


MOST_ELEMENTS = 64
"""Elements of a tile."""


def matrix_of(axis: Axis, kind: str) -> Matrix:
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
    """The function that transforms all features of a tile, from and to the addresses in two tables."""
    whole, rest = (_intrinsic(name, rows, columns, masked) for masked in (False, True))

    @inner
    def transform_features(sources: int, targets: int, features: int) -> None:
        vectors = features // LANES
        if vectors > 0:
            whole(sources, targets, 0, vectors)
        if features % LANES != 0:
            rest(sources, targets, vectors, features % LANES)

    return transform_features


def _intrinsic(name: str, rows: Matrix, columns: Matrix, masked: bool) -> Any:
    """The intrinsic for a number of whole vectors from the given one on, or for some lanes of that one."""

    @intrinsic
    def transform_vectors(
        typing_context: Any, sources: types.Type, targets: types.Type, begin: types.Type, count: types.Type
    ) -> tuple[Any, Emitter]:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            builder.call(_function(builder.module, name, rows, columns, masked), arguments)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return transform_vectors


def _function(module: ir.Module, name: str, rows: Matrix, columns: Matrix, masked: bool) -> ir.Function:
    """The LLVM function of a transform, defined in the module on first use."""
    name += "_masked" * masked
    if name in module.globals:
        return module.globals[name]
    function, builder = internal_function(module, name, 4)
    sources, targets, begin, count = function.args
    mask = vector.lane_mask(builder, count) if masked else None
    begin = builder.mul(begin, I64(4 * LANES))
    end = builder.add(begin, I64(4 * LANES) if masked else builder.mul(count, I64(4 * LANES)))
    loop = Loop(builder, "vectors", begin, end, I64(4 * LANES))
    height, width = len(rows[0]), len(columns[0])
    across = []
    for column in range(width):
        places = [_address(builder, sources, width * row + column) for row in range(height)]
        loaded = [vector.load_vector(builder, builder.add(each, loop.at), mask) for each in places]
        across.append(applied(builder, rows, loaded))
    for row in range(len(rows)):
        for column, value in enumerate(applied(builder, columns, [each[row] for each in across])):
            address = _address(builder, targets, len(columns) * row + column)
            vector.store_vector(builder, value, builder.add(address, loop.at), mask)
    loop.close()
    builder.ret_void()
    return function


def _address(builder: ir.IRBuilder, table: ir.Value, number: int) -> ir.Value:
    return builder.load(builder.inttoptr(builder.add(table, I64(8 * number)), POINTER), align=8, typ=I64)


@inner
def fill_addresses(
    tiled: int, image: int, tile_row: int, tile_column: int, height: int, width: int, outside: int, table: int
) -> None:
    """The addresses of a tile's elements, row by row; `outside` is that of those that do not exist."""
    first_row, first_column = word(tiled, Tiled.FIRST_ROW), word(tiled, Tiled.FIRST_COLUMN)
    pitch, step = word(tiled, Tiled.ROW), word(tiled, Tiled.COLUMN)
    at = word(tiled, Tiled.ARRAY) + image * word(tiled, Tiled.IMAGE) + tile_row * word(tiled, Tiled.TILE_ROW)
    at += tile_column * word(tiled, Tiled.TILE_COLUMN) + first_row * pitch + first_column * step
    row = tile_row * word(tiled, Tiled.STEP_ROW) + first_row
    column = tile_column * word(tiled, Tiled.STEP_COLUMN) + first_column
    rows, columns = word(tiled, Tiled.ROWS), word(tiled, Tiled.COLUMNS)
    for p in range(height):
        inside = 0 <= row + p and row + p < rows
        for q in range(width):
            exists = inside and 0 <= column + q and column + q < columns
            store_i64(table + 8 * q, at + q * step if exists else outside)
        at += pitch
        table += 8 * width


@cache
def tile_transform(kind: str, row_axis: Axis, column_axis: Axis) -> Codelet:
    """`winograd_tiles` of that kind, as `matrix_of` has it."""
    rows, columns = matrix_of(row_axis, kind), matrix_of(column_axis, kind)
    name = f"winograd_tiles_{kind}_{row_axis.name}_{column_axis.name}"
    transform_features = _transforming(name, rows, columns)
    height, width, results, wide = len(rows[0]), len(columns[0]), len(rows), len(columns)

    def transform_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        sources = scratch + RESERVED_SCRATCH
        targets = sources + 8 * MOST_ELEMENTS
        zeros, features = targets + 8 * MOST_ELEMENTS, word(parameters, Transform.FEATURES)
        dropped = zeros + 4 * (features + LANES)
        for i in range(features):
            store_f32(zeros + 4 * i, 0.0)
        source, target = parameters + 8 * Transform.SOURCE, parameters + 8 * Transform.TARGET
        tile_rows, unit_rows = word(parameters, Transform.TILE_ROWS), word(parameters, Transform.UNIT_ROWS)
        for row in range(lo * unit_rows, min(hi * unit_rows, word(parameters, Transform.IMAGES) * tile_rows)):
            image, i = row // tile_rows, row % tile_rows
            for j in range(word(parameters, Transform.TILE_COLUMNS)):
                fill_addresses(source, image, i, j, height, width, zeros, sources)
                fill_addresses(target, image, i, j, results, wide, dropped, targets)
                transform_features(sources, targets, features)

    return Codelet(transform_units, name, in_vectors=True)
