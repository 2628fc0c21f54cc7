"""Packing of 16-bit floats: copies of blocks of A and B in float32, in the layout that the micro kernels read fastest.

The functions correspond to those of `engine.codelets.pack` for float32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir

from engine.codelets import half_vectors as half
from engine.codelets.build import inner
from engine.codelets.half_vectors import element, narrow, narrow_some, widen, widen_some
from engine.codelets.lazy import types
from engine.codelets.memory import Emitter, intrinsic, load_i64, store_f32
from engine.codelets.pack import LANES, Load, read_by_rows, transposed_block

LEAST_RUN = 4  # contiguous 16-bit floats that are worth a vector of their own


@intrinsic
def transpose_half(
    typing_context: Any,
    kind: types.Type,
    source: types.Type,
    offsets: types.Type,
    rows: types.Type,
    columns: types.Type,
    target: types.Type,
    target_pitch: types.Type,
) -> tuple[Any, Emitter]:
    """As `transpose_lanes`, from 16-bit floats."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        def write(name: str) -> None:
            load = partial(_load, name)
            transposed_block(builder, load, partial(_read_whole, load), arguments[1:])

        half.by_kind(builder, arguments[0], write)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), emit


def _load(kind: str, builder: ir.IRBuilder, address: ir.Value, mask: ir.Value | None = None) -> ir.Value:
    return half.load_half(builder, kind, address, mask)


def _read_whole(load: Load, builder: ir.IRBuilder, source: ir.Value, offsets: ir.Value) -> list[ir.Value]:
    return read_by_rows(builder, load, source, offsets)


@inner
def widen_run(kind: int, source: int, target: int, count: int) -> None:
    """target[4i] = source[2i], i < count; padded with zeros to whole vectors."""
    whole = count // LANES * LANES
    for i in range(0, whole, LANES):
        widen(kind, source + 2 * i, target + 4 * i, LANES)
    if whole < count:
        widen_some(kind, source + 2 * whole, target + 4 * whole, count - whole)


@inner
def narrow_run(kind: int, source: int, target: int, count: int) -> None:
    """target[2i] = source[4i] rounded, i < count; reads whole vectors."""
    whole = count // LANES * LANES
    for i in range(0, whole, LANES):
        narrow(kind, source + 4 * i, target + 2 * i, LANES)
    if whole < count:
        narrow_some(kind, source + 4 * whole, target + 2 * whole, count - whole)


@inner
def pack_transposed_half(
    kind: int, source: int, offsets: int, rows: int, columns: int, target: int, pitch: int
) -> None:
    """target[column * pitch + 4 row] = source[offsets[row] + 2 column]; padded to whole vectors."""
    for row in range(0, rows, LANES):
        for column in range(0, columns, LANES):
            transpose_half(
                kind,
                source + 2 * column,
                offsets + 8 * row,
                min(LANES, rows - row),
                min(LANES, columns - column),
                target + column * pitch + 4 * row,
                pitch,
            )


@inner
def pack_grouped_half(kind: int, a: int, row_a: int, offset_a: int, rows: int, k: int, target: int, pitch: int) -> None:
    """target[m * pitch + 4k] = A[row_a[m] + offset_a[k]]; each lanes() rows are contiguous."""
    for row in range(0, rows, LANES):
        group = a + load_i64(row_a + 8 * row)
        pack_transposed_half(kind, group, offset_a, k, min(LANES, rows - row), target + row * pitch, pitch)


@inner
def pack_half_runs(
    kind: int, a: int, row_a: int, offset_a: int, run: int, begun: int, rows: int, k: int, target: int, pitch: int
) -> None:
    """target[m * pitch + 4k] = A[row_a[m] + offset_a[k]].

    Each `run` elements along k are contiguous; the first run lacks `begun` of them. May touch a vector beyond the end.
    """
    for m in range(rows):
        source, row = a + load_i64(row_a + 8 * m), target + m * pitch
        if run < LEAST_RUN:
            for i in range(k):
                store_f32(row + 4 * i, element(kind, source + load_i64(offset_a + 8 * i)))
        done = 0 if run >= LEAST_RUN else k
        while done < k:
            count = min(k - done, run - (begun + done) % run)
            widen_run(kind, source + load_i64(offset_a + 8 * done), row + 4 * done, count)
            done += count


@inner
def pack_half_rows(kind: int, b: int, offset_b: int, k: int, columns: int, target: int, pitch: int) -> None:
    """Packs B[offset_b[k] + 2n]: target[k * pitch + 4n], padded with zeros to whole vectors."""
    for i in range(k):
        widen_run(kind, b + load_i64(offset_b + 8 * i), target + i * pitch, columns)


@inner
def pack_half_columns(
    kind: int, b: int, offset_b: int, stride_b: int, k: int, columns: int, target: int, pitch: int
) -> None:
    """Packs B[offset_b[k] + stride_b * n]: target[k * pitch + 4n], padded like `pack_half_rows`."""
    padded = (columns + LANES - 1) // LANES * LANES
    for i in range(k):
        source, row = b + load_i64(offset_b + 8 * i), target + i * pitch
        for n in range(columns):
            store_f32(row + 4 * n, element(kind, source + n * stride_b))
        for n in range(columns, padded):
            store_f32(row + 4 * n, 0.0)
