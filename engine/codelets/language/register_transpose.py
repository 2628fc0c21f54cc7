"""Transposes blocks of lanes() x lanes() elements in registers."""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import F32, I32, I64, POINTER, loaded_i64, places
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()
QUARTER = 4  # elements that one instruction loads from memory into any part of a vector


@cache
def lanes_transposed(element_type: str) -> Any:
    """The intrinsic `transpose_lanes` that reads float32, f16 or bf16, and writes float32."""

    @intrinsic
    def transpose_lanes(
        builder: ir.IRBuilder,
        source: ir.Value,
        offsets: ir.Value,
        rows: ir.Value,
        columns: ir.Value,
        destination: ir.Value,
        pitch: ir.Value,
    ) -> None:
        """Transposes a block of rows x columns <= lanes() x lanes() elements, in registers.

        Row i begins at source + offsets[i]; offsets is the address of an int64 table.
        Writes `columns` whole vectors, whose lanes from `rows` on are zeros.
        """
        whole = builder.icmp_signed("==", builder.add(rows, columns), I64(2 * LANES))
        with builder.if_else(whole, likely=True) as (full, partial):
            with full:
                block = _read_columns(builder, element_type, source, offsets)
                _write_columns(builder, block, destination, pitch)
            with partial:
                block = _shuffle(builder, _read_rows(builder, element_type, source, offsets, rows, columns))
                _write_columns(builder, block, destination, pitch, columns)

    return transpose_lanes


def _read_columns(builder: ir.IRBuilder, element_type: str, source: ir.Value, offsets: ir.Value) -> list[ir.Value]:
    """Reads a whole block transposed; float32 vectors are loaded from every QUARTER-th row, without a shuffle."""
    addresses = places(builder, source, offsets, LANES)
    if element_type != "f32":
        return _shuffle(builder, [vector.load_vector(builder, each, None, element_type) for each in addresses])
    columns = []
    for first in range(0, LANES, QUARTER):
        rows = [_side_by_side(builder, addresses[i::QUARTER], 4 * first) for i in range(QUARTER)]
        columns += _shuffle(builder, rows)
    return columns


def _side_by_side(builder: ir.IRBuilder, addresses: list[ir.Value], offset: int) -> ir.Value:
    """One vector of QUARTER elements from each address."""
    made = ir.Constant(vector.vector_type(), ir.Undefined)
    for slot, address in enumerate(addresses):
        pointer = builder.inttoptr(builder.add(address, I64(offset)), POINTER)
        run = builder.load(pointer, align=4, typ=ir.VectorType(F32, QUARTER))
        wide = list(range(QUARTER)) + [0] * (LANES - QUARTER)
        nothing = ir.Constant(run.type, ir.Undefined)
        run = builder.shuffle_vector(run, nothing, ir.Constant(vector.vector_type(I32), wide))
        own = range(QUARTER * slot, QUARTER * (slot + 1))
        lanes = [LANES + lane - own.start if lane in own else lane for lane in range(LANES)]
        made = builder.shuffle_vector(made, run, ir.Constant(vector.vector_type(I32), lanes))
    return made


def _read_rows(
    builder: ir.IRBuilder,
    element_type: str,
    source: ir.Value,
    offsets: ir.Value,
    rows: ir.Value,
    columns: ir.Value,
) -> list[ir.Value]:
    """Reads lanes() vectors; missing rows and columns are zeros and their memory is not accessed."""
    mask, nothing = vector.lane_mask(builder, columns), vector.lane_mask(builder, I64(0))
    read = []
    for i in range(LANES):
        present = builder.icmp_signed(">", rows, I64(i))
        index = builder.select(present, I64(8 * i), I64(0))
        row_mask = builder.select(present, mask, nothing)
        address = builder.add(source, loaded_i64(builder, builder.add(offsets, index)))
        read.append(vector.load_vector(builder, address, row_mask, element_type))
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
