"""Packing: copies of blocks of A and B as float32, in the layout that the micro kernels read fastest.

`packing` makes the functions for elements of float32, f16 or bf16 in memory. Rows of B, and columns of A that were
transposed, are padded with zeros to whole vectors.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from engine.codelets.language import vector
from engine.codelets.language.build import Inner, inner
from engine.codelets.language.element import load_element
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import I32, I64, POINTER, load_i64, store_f32, store_i64
from engine.codelets.language.record import word
from engine.codelets.language.register_transpose import lanes_transposed
from engine.codelets.products.contract import Operands
from engine.codelets.products.contract_fields import Field, Layout
from engine.codelets.products.micro_kernel import panel_columns, panel_vectors
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()
PANEL = panel_columns()
UNROLLED = 4  # vectors of a run that are copied in one iteration
LEAST_RUN = 4  # contiguous elements that are worth a vector of their own


@inner
def fill_progression(table: int, count: int, step: int) -> None:
    """table[i] = i * step, as int64."""
    for i in range(count):
        store_i64(table + 8 * i, i * step)


@inner
def packed_pitch(width: int) -> int:
    """Bytes between the rows of a packed panel."""
    return (width + LANES - 1) // LANES * LANES * 4


def _copying(source_type: str, target_type: str, vectors: int = 1, masked: bool = False, pairs: bool = False) -> Any:
    """Makes the intrinsic that copies vectors between element types, whole ones or only `count` lanes of the last one.

    In scratch, where elements are float32, whole vectors are accessed; lanes that are not copied are written as zeros.
    With `pairs` bf16 of two runs are joined to 32 bits, those of `first` in the lower half; else `second` is not used.
    """
    widens = target_type == "f32"

    @intrinsic
    def copy_lanes(builder: ir.IRBuilder, first: ir.Value, second: ir.Value, target: ir.Value, count: ir.Value) -> None:
        mask = vector.lane_mask(builder, count) if masked else None
        for j in range(vectors):
            offset = I64(vector.BYTES[source_type] * LANES * j)
            written = builder.add(target, I64(vector.BYTES[target_type] * LANES * j))
            lanes_mask = mask if j == vectors - 1 else None
            if pairs:
                low, high = (
                    vector.load_bits(builder, builder.add(each, offset), lanes_mask) for each in (first, second)
                )
                high = builder.shl(high, vector.all_lanes(16))
                builder.store(builder.or_(low, high), builder.inttoptr(written, POINTER), align=4)
            else:
                read = builder.add(first, offset)
                value = vector.load_vector(builder, read, lanes_mask if widens else None, source_type)
                vector.store_vector(builder, value, written, None if widens else lanes_mask, target_type)

    return copy_lanes


@cache
def _joined_runs(source_type: str, target_type: str, pairs: bool) -> Inner:
    """Makes `copy_runs`, which copies one run, or the pairs of two."""
    kinds = source_type, target_type
    copy, copy_several = (_copying(*kinds, vectors, pairs=pairs) for vectors in (1, UNROLLED))
    copy_some = _copying(*kinds, masked=True, pairs=pairs)
    read, written = vector.BYTES[source_type], vector.BYTES[target_type]

    @inner
    def copy_runs(first: int, second: int, target: int, count: int) -> None:
        """target[i] = first[i], or (first[i], second[i]), i < count; in scratch, vectors are padded with zeros."""
        whole, several = count // LANES * LANES, count // (UNROLLED * LANES) * (UNROLLED * LANES)
        for i in range(0, several, UNROLLED * LANES):
            copy_several(first + read * i, second + read * i, target + written * i, LANES)
        for i in range(several, whole, LANES):
            copy(first + read * i, second + read * i, target + written * i, LANES)
        if whole < count:
            copy_some(first + read * whole, second + read * whole, target + written * whole, count - whole)

    return copy_runs


@cache
def copied_run(source_type: str, target_type: str) -> Inner:
    """Makes `copy_run` between float32 in scratch and elements in memory."""
    copy_runs = _joined_runs(source_type, target_type, False)

    @inner
    def copy_run(source: int, target: int, count: int) -> None:
        """target[i] = source[i], i < count. In scratch whole vectors are accessed, padded with zeros."""
        copy_runs(source, source, target, count)

    return copy_run


join_runs = _joined_runs("bf16", "f32", True)
"""`join_runs(first, second, target, count)`: the pairs of two runs of bf16."""


@intrinsic
def keep_lower(builder: ir.IRBuilder, target: ir.Value) -> None:
    """Sets the second of each pair of a vector in memory to zero."""
    kind = vector.vector_type(I32)
    pointer = builder.inttoptr(target, POINTER)
    lower = builder.and_(builder.load(pointer, align=4, typ=kind), vector.all_lanes(0xFFFF))
    builder.store(lower, pointer, align=4)


class Packing(NamedTuple):
    """The functions that pack elements of one type."""

    groups: Inner
    rows: Inner
    runs: Inner
    panel: Inner


@cache
def packing(element_type: str, pairs: bool = False) -> Packing:
    """Makes the functions that pack float32, f16 or bf16; with `pairs` rows and panels of bf16 neighbours along k."""
    size, together = vector.BYTES[element_type], 2 if pairs else 1
    shapes = (panel_vectors(), False), (panel_vectors(), True), (1, False), (1, True)
    copy_panel_row, copy_most_of_row, copy_vector, copy_some = (
        _copying(element_type, "f32", vectors, masked, pairs) for vectors, masked in shapes
    )
    copy_run, copy_runs = copied_run(element_type, "f32"), _joined_runs(element_type, "f32", pairs)
    # Pairs that are in place along k are transposed as 32 bits.
    transpose_lanes = lanes_transposed("f32" if pairs else element_type)

    @inner
    def pack_transposed(source: int, offsets: int, rows: int, columns: int, target: int, pitch: int) -> None:
        """target[column * pitch + 4 row] = source[offsets[row] + size * column]; padded to whole vectors."""
        for row in range(0, rows, LANES):
            for column in range(0, columns, LANES):
                transpose_lanes(
                    source + size * together * column,
                    offsets + 8 * row,
                    min(LANES, rows - row),
                    min(LANES, columns - column),
                    target + column * pitch + 4 * row,
                    pitch,
                )

    @inner
    def pack_groups(a: int, row_a: int, offset_a: int, rows: int, k: int, target: int, pitch: int) -> None:
        """target[m * pitch + 4k] = A[row_a[m] + offset_a[k]]; each lanes() rows are contiguous."""
        for row in range(0, rows, LANES):
            group = a + load_i64(row_a + 8 * row)
            pack_transposed(group, offset_a, k, min(LANES, rows - row), target + row * pitch, pitch)

    @inner
    def pack_runs(
        a: int, row_a: int, offset_a: int, run: int, begun: int, rows: int, k: int, target: int, pitch: int
    ) -> None:
        """target[m * pitch + 4k] = A[row_a[m] + offset_a[k]].

        Each `run` elements along k are contiguous; of the first run, `begun` elements are missing. May write a vector
        beyond the end.
        """
        if run >= LEAST_RUN and begun + k <= run:
            first = a + load_i64(offset_a)
            for m in range(rows):
                copy_run(first + load_i64(row_a + 8 * m), target + m * pitch, k)
            return
        for m in range(rows):
            source, row = a + load_i64(row_a + 8 * m), target + m * pitch
            if run < LEAST_RUN:
                for i in range(k):
                    store_f32(row + 4 * i, load_element(source + load_i64(offset_a + 8 * i), element_type, "f32"))
            done = 0 if run >= LEAST_RUN else k
            while done < k:
                count = min(k - done, run - (begun + done) % run)
                copy_run(source + load_i64(offset_a + 8 * done), row + 4 * done, count)
                done += count

    @inner
    def pack_rows(b: int, offset_b: int, k: int, columns: int, target: int, pitch: int) -> None:
        """target[k * pitch + 4n] = B[offset_b[k] + size * n]; with pairs target row i has rows 2 i and 2 i + 1 of B."""
        for i in range(0, k, together):
            first, row = b + load_i64(offset_b + 8 * i), target + i // together * pitch
            second = b + load_i64(offset_b + 8 * (i + 1)) if pairs and i + 1 < k else first
            if columns == PANEL:
                copy_panel_row(first, second, row, PANEL)
            elif PANEL - LANES < columns < PANEL:
                copy_most_of_row(first, second, row, columns - (PANEL - LANES))
            elif columns == LANES:
                copy_vector(first, second, row, LANES)
            elif columns < LANES:
                copy_some(first, second, row, columns)
            else:
                copy_runs(first, second, row, columns)
            if pairs and i + 1 == k:
                for at in range(0, 4 * columns, 4 * LANES):
                    keep_lower(row + at)

    @inner
    def pack_elements(b: int, offset_b: int, stride_b: int, k: int, columns: int, target: int, pitch: int) -> None:
        """target[k * pitch + 4n] = B[offset_b[k] + stride_b * n]."""
        padded = packed_pitch(columns)
        for i in range(k):
            source, row = b + load_i64(offset_b + 8 * i), target + i * pitch
            for n in range(columns):
                store_f32(row + 4 * n, load_element(source + n * stride_b, element_type, "f32"))
            for at in range(4 * columns, padded, 4):
                store_f32(row + at, 0.0)

    @inner
    def pack_panel(at: Operands, column: int, width: int, k: int, k_count: int, target: int, offsets: int) -> None:
        """Packs rows k .. k + k_count of `width` columns of B; `offsets`: address of space for the columns' offsets.

        Pairs require `has_pair_panels`.
        """
        layout, stride = word(at.parameters, Field.LAYOUT_B), word(at.parameters, Field.STRIDE_B)
        offset_b = word(at.parameters, Field.OFFSET_B) + 8 * k
        source, pitch = at.b + column * stride, packed_pitch(width)
        if layout == Layout.ROWS or layout == Layout.SCATTERED_ROWS:
            pack_rows(source, offset_b, k_count, width, target, pitch)
        elif layout == Layout.ELEMENTS and not pairs:
            pack_elements(source, offset_b, stride, k_count, width, target, pitch)
        else:
            run = k_count if layout == Layout.TRANSPOSED else word(at.parameters, Field.PITCH_B)
            fill_progression(offsets, width, stride)
            done = 0
            while done < k_count:
                count = k_count - done
                if layout == Layout.RUNS:
                    count = min(count, run - (k + done) % run)
                first, row = source + load_i64(offset_b + 8 * done), target + done // together * pitch
                pack_transposed(first, offsets, width, count // together, row, pitch)
                done += count

    return Packing(pack_groups, pack_rows, pack_runs, pack_panel)
