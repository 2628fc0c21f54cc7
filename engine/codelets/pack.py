"""Packing: copies of blocks of A and B in the layout that the micro kernels read fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from engine.codelets import vector
from engine.codelets.build import inner
from engine.codelets.lazy import types
from engine.codelets.memory import F32, I32, I64, POINTER, Emitter, intrinsic, load_f32, load_i64, store_f32, store_i64
from engine.codelets.micro_kernel import panel_columns, panel_vectors
from engine.machine_code.processor import lanes

LANES = lanes()
VECTOR_BYTES = 4 * LANES
PANEL = panel_columns()
Load = Callable[..., ir.Value]
"""(builder, address, mask or None) to a vector of float32."""
QUARTER = 4  # elements that one instruction loads from memory into any part of a vector


@intrinsic
def copy_lanes(
    typing_context: Any, source: types.Type, destination: types.Type, count: types.Type
) -> tuple[Any, Emitter]:
    """Reads `count` <= lanes() float32 and writes a whole vector, the rest of it zeros."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        mask = vector.lane_mask(builder, arguments[2])
        vector.store_vector(builder, vector.load_vector(builder, arguments[0], mask), arguments[1])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), emit


@intrinsic
def copy_panel_row(typing_context: Any, source: types.Type, destination: types.Type) -> tuple[Any, Emitter]:
    """Copies panel_columns() float32."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        for j in range(panel_vectors()):
            source, destination = (builder.add(address, I64(VECTOR_BYTES * j)) for address in arguments)
            vector.store_vector(builder, vector.load_vector(builder, source), destination)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 2), emit


@intrinsic
def transpose_lanes(
    typing_context: Any,
    source: types.Type,
    offsets: types.Type,
    rows: types.Type,
    columns: types.Type,
    destination: types.Type,
    destination_pitch: types.Type,
) -> tuple[Any, Emitter]:
    """Transposes a block of rows x columns <= lanes() x lanes() float32, in registers.

    Row i begins at source + offsets[i]; offsets is the address of an int64 table.
    Writes `columns` whole vectors, whose lanes from `rows` on are zeros.
    """

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        transposed_block(builder, vector.load_vector, _read_columns, arguments)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), emit


def transposed_block(
    builder: ir.IRBuilder, load: Load, read_whole: Callable[..., list[ir.Value]], arguments: tuple[ir.Value, ...]
) -> None:
    """Emits `transpose_lanes` for its arguments; `load` reads lanes() elements as float32.

    `read_whole` reads a whole block, transposed.
    """
    source, offsets, rows, columns, destination, destination_pitch = arguments
    whole = builder.icmp_signed("==", builder.add(rows, columns), I64(2 * LANES))
    with builder.if_else(whole, likely=True) as (full, partial):
        with full:
            block = read_whole(builder, source, offsets)
            _write_columns(builder, block, destination, destination_pitch)
        with partial:
            block = _shuffle(builder, _read_rows(builder, load, source, offsets, rows, columns))
            _write_columns(builder, block, destination, destination_pitch, columns)


def read_by_rows(builder: ir.IRBuilder, load: Load, source: ir.Value, offsets: ir.Value) -> list[ir.Value]:
    """Reads a whole block row by row; returns it transposed."""
    return _shuffle(builder, [load(builder, address) for address in _addresses(builder, source, offsets)])


def _addresses(builder: ir.IRBuilder, source: ir.Value, offsets: ir.Value) -> list[ir.Value]:
    """Addresses of the rows of a whole block."""
    entries = [builder.inttoptr(builder.add(offsets, I64(8 * i)), POINTER) for i in range(LANES)]
    return [builder.add(source, builder.load(entry, align=8, typ=I64)) for entry in entries]


def _read_columns(builder: ir.IRBuilder, source: ir.Value, offsets: ir.Value) -> list[ir.Value]:
    """Reads a whole block transposed: loads every QUARTER-th row into one vector, which needs no shuffle."""
    addresses = _addresses(builder, source, offsets)
    columns = []
    for first in range(0, LANES, QUARTER):
        rows = [_side_by_side(builder, addresses[i::QUARTER], 4 * first) for i in range(QUARTER)]
        columns += _shuffle(builder, rows)
    return columns


def _side_by_side(builder: ir.IRBuilder, addresses: list[ir.Value], offset: int) -> ir.Value:
    """One vector of QUARTER elements from each address."""
    made = ir.Constant(vector.vector_type(), ir.Undefined)
    for place, address in enumerate(addresses):
        pointer = builder.inttoptr(builder.add(address, I64(offset)), POINTER)
        run = builder.load(pointer, align=4, typ=ir.VectorType(F32, QUARTER))
        wide = list(range(QUARTER)) + [0] * (LANES - QUARTER)
        nothing = ir.Constant(run.type, ir.Undefined)
        run = builder.shuffle_vector(run, nothing, ir.Constant(vector.vector_type(I32), wide))
        own = range(QUARTER * place, QUARTER * (place + 1))
        lanes = [LANES + lane - own.start if lane in own else lane for lane in range(LANES)]
        made = builder.shuffle_vector(made, run, ir.Constant(vector.vector_type(I32), lanes))
    return made


def _read_rows(
    builder: ir.IRBuilder,
    load: Load,
    source: ir.Value,
    offsets: ir.Value,
    rows: ir.Value,
    columns: ir.Value,
) -> list[ir.Value]:
    """Reads lanes() vectors; missing rows and columns are zeros and their memory is not accessed."""
    nothing = ir.Constant(vector.vector_type(vector.BIT), [0] * LANES)
    mask = vector.lane_mask(builder, columns)
    read = []
    for i in range(LANES):
        present = builder.icmp_signed(">", rows, I64(i))
        index = builder.select(present, I64(8 * i), I64(0))
        row_mask = builder.select(present, mask, nothing)
        entry = builder.inttoptr(builder.add(offsets, index), POINTER)
        address = builder.add(source, builder.load(entry, align=8, typ=I64))
        read.append(load(builder, address, row_mask))
    return read


def _write_columns(
    builder: ir.IRBuilder,
    block: list[ir.Value],
    destination: ir.Value,
    pitch: ir.Value,
    columns: ir.Value | None = None,
) -> None:
    """Stores the vectors `pitch` bytes apart: all, or the first `columns`."""
    for i, column in enumerate(block):
        address = builder.add(destination, builder.mul(pitch, I64(i)))
        if columns is None:
            vector.store_vector(builder, column, address)
        else:
            with builder.if_then(builder.icmp_signed(">", columns, I64(i))):
                vector.store_vector(builder, column, address)


def _shuffle(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Transposes blocks of as many lanes as there are rows, by swapping ever larger blocks between pairs of vectors."""
    distance = 1
    while distance < len(rows):
        rows = list(rows)
        for i in (i for i in range(len(rows)) if not i & distance):
            low = [lane if not lane & distance else LANES + lane - distance for lane in range(LANES)]
            high = [lane + distance if not lane & distance else LANES + lane for lane in range(LANES)]
            pair = rows[i], rows[i + distance]
            rows[i] = builder.shuffle_vector(*pair, ir.Constant(vector.vector_type(I32), low))
            rows[i + distance] = builder.shuffle_vector(*pair, ir.Constant(vector.vector_type(I32), high))
        distance *= 2
    return rows


@inner
def pack_transposed(
    source: int, offsets: int, rows: int, columns: int, destination: int, destination_pitch: int
) -> None:
    """destination[column * pitch + 4 row] = source[offsets[row] + 4 column]; padded to whole vectors."""
    for row in range(0, rows, LANES):
        for column in range(0, columns, LANES):
            transpose_lanes(
                source + 4 * column,
                offsets + 8 * row,
                min(LANES, rows - row),
                min(LANES, columns - column),
                destination + column * destination_pitch + 4 * row,
                destination_pitch,
            )


@inner
def pack_rows(b: int, offset_b: int, k: int, columns: int, destination: int, pitch: int) -> None:
    """Packs B[offset_b[k] + 4n]: destination[k * pitch + 4n], padded with zeros to whole vectors."""
    whole = columns // LANES
    last_columns = columns - whole * LANES
    for i in range(k):
        source = b + load_i64(offset_b + 8 * i)
        row = destination + i * pitch
        if columns == PANEL:
            copy_panel_row(source, row)
            continue
        for j in range(whole):
            copy_lanes(source + j * VECTOR_BYTES, row + j * VECTOR_BYTES, LANES)
        if last_columns > 0:
            copy_lanes(source + whole * VECTOR_BYTES, row + whole * VECTOR_BYTES, last_columns)


@inner
def pack_elements(b: int, offset_b: int, stride_b: int, k: int, columns: int, destination: int, pitch: int) -> None:
    """Packs B[offset_b[k] + stride_b * n]: destination[k * pitch + 4n], padded like `pack_rows`."""
    padded = (columns + LANES - 1) // LANES * LANES
    for i in range(k):
        source = b + load_i64(offset_b + 8 * i)
        row = destination + i * pitch
        for n in range(columns):
            store_f32(row + 4 * n, load_f32(source + n * stride_b))
        for n in range(columns, padded):
            store_f32(row + 4 * n, 0.0)


@inner
def pack_grouped_rows(a: int, row_a: int, offset_a: int, rows: int, k: int, destination: int, pitch: int) -> None:
    """destination[m * pitch + 4k] = A[row_a[m] + offset_a[k]]; each lanes() rows are contiguous."""
    for row in range(0, rows, LANES):
        group = a + load_i64(row_a + 8 * row)
        pack_transposed(group, offset_a, k, min(LANES, rows - row), destination + row * pitch, pitch)


@inner
def fill_progression(table: int, count: int, step: int) -> None:
    """table[i] = i * step, as int64."""
    for i in range(count):
        store_i64(table + 8 * i, i * step)
