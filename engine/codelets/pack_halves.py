"""Packing of halves: copies of blocks of A and B in float32, laid out as the micro kernels read them fastest.

The functions do what those of `engine.codelets.pack` do for float32.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from engine.codelets import half_vectors as halves
from engine.codelets.build import inner
from engine.codelets.lazy import types
from engine.codelets.memory import Emitter, intrinsic, load_i64, store_f32
from engine.codelets.pack import LANES, read_by_rows, transposed_block

F16, BF16 = 0, 1  # numbers of the kinds: what is constant in a codelet costs nothing there
LEAST_RUN = 4  # halves next to each other that are worth a vector of their own


def _transposing_intrinsic(kind: str) -> Any:
    @intrinsic
    def transpose_halves(
        typing_context: Any,
        source: types.Type,
        offsets: types.Type,
        rows: types.Type,
        columns: types.Type,
        target: types.Type,
        target_pitch: types.Type,
    ) -> tuple[Any, Emitter]:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            def load(builder: ir.IRBuilder, address: ir.Value, mask: ir.Value | None = None) -> ir.Value:
                return halves.load_halves(builder, kind, address, mask)

            def read_whole(builder: ir.IRBuilder, source: ir.Value, offsets: ir.Value) -> list[ir.Value]:
                return read_by_rows(builder, load, source, offsets)

            transposed_block(builder, load, read_whole, arguments)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return transpose_halves


def _widening(widen: Any, widen_some: Any) -> Any:
    @inner
    def widen_run(source: int, target: int, count: int) -> None:
        whole = count // LANES * LANES
        for i in range(0, whole, LANES):
            widen(source + 2 * i, target + 4 * i, LANES)
        if whole < count:
            widen_some(source + 2 * whole, target + 4 * whole, count - whole)

    return widen_run


def _narrowing(narrow: Any, narrow_some: Any) -> Any:
    @inner
    def narrow_run(source: int, target: int, count: int) -> None:
        whole = count // LANES * LANES
        for i in range(0, whole, LANES):
            narrow(source + 4 * i, target + 2 * i, LANES)
        if whole < count:
            narrow_some(source + 4 * whole, target + 2 * whole, count - whole)

    return narrow_run


def _transposing(transpose: Any) -> Any:
    @inner
    def transposed(source: int, offsets: int, rows: int, columns: int, target: int, pitch: int) -> None:
        for row in range(0, rows, LANES):
            for column in range(0, columns, LANES):
                transpose(
                    source + 2 * column,
                    offsets + 8 * row,
                    min(LANES, rows - row),
                    min(LANES, columns - column),
                    target + column * pitch + 4 * row,
                    pitch,
                )

    return transposed


_widen_run_f16 = _widening(halves.widen_f16, halves.widen_some_f16)
_widen_run_bf16 = _widening(halves.widen_bf16, halves.widen_some_bf16)
_narrow_run_f16 = _narrowing(halves.narrow_f16, halves.narrow_some_f16)
_narrow_run_bf16 = _narrowing(halves.narrow_bf16, halves.narrow_some_bf16)
_transposed_f16 = _transposing(_transposing_intrinsic("f16"))
_transposed_bf16 = _transposing(_transposing_intrinsic("bf16"))


@inner
def widen_run(kind: int, source: int, target: int, count: int) -> None:
    """target[4i] = source[2i], i < count; padded with zeros to whole vectors."""
    if kind == F16:
        _widen_run_f16(source, target, count)
    else:
        _widen_run_bf16(source, target, count)


@inner
def narrow_run(kind: int, source: int, target: int, count: int) -> None:
    """target[2i] = source[4i] rounded, i < count; reads whole vectors."""
    if kind == F16:
        _narrow_run_f16(source, target, count)
    else:
        _narrow_run_bf16(source, target, count)


@inner
def pack_transposed_halves(
    kind: int, source: int, offsets: int, rows: int, columns: int, target: int, pitch: int
) -> None:
    """target[column * pitch + 4 row] = source[offsets[row] + 2 column]; padded to whole vectors."""
    if kind == F16:
        _transposed_f16(source, offsets, rows, columns, target, pitch)
    else:
        _transposed_bf16(source, offsets, rows, columns, target, pitch)


@inner
def pack_grouped_halves(
    kind: int, a: int, row_a: int, offset_a: int, rows: int, k: int, target: int, pitch: int
) -> None:
    """target[m * pitch + 4k] = A[row_a[m] + offset_a[k]]; each lanes() rows lie next to each other."""
    for row in range(0, rows, LANES):
        group = a + load_i64(row_a + 8 * row)
        pack_transposed_halves(kind, group, offset_a, k, min(LANES, rows - row), target + row * pitch, pitch)


@inner
def widened(kind: int, address: int) -> float:
    """The half at an address."""
    return halves.element_f16(address) if kind == F16 else halves.element_bf16(address)


@inner
def pack_half_runs(
    kind: int, a: int, row_a: int, offset_a: int, run: int, begun: int, rows: int, k: int, target: int, pitch: int
) -> None:
    """target[m * pitch + 4k] = A[row_a[m] + offset_a[k]].

    Each `run` elements along k lie next to each other, of the first ones `begun` are over. Touches up to a vector more.
    """
    for m in range(rows):
        source, row = a + load_i64(row_a + 8 * m), target + m * pitch
        if run < LEAST_RUN:
            for i in range(k):
                store_f32(row + 4 * i, widened(kind, source + load_i64(offset_a + 8 * i)))
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
            store_f32(row + 4 * n, widened(kind, source + n * stride_b))
        for n in range(columns, padded):
            store_f32(row + 4 * n, 0.0)
