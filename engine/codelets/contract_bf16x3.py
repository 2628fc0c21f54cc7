"""The codelet of large float32 products on matrix registers, by the bf16x3 split: six bfloat16 products for each.

A float32 is the sum of three bfloat16 parts. Of the nine products of the parts of two numbers the six largest are
summed in float32: the rest is at most 2**-24 of the product, as much as rounding it would cost. Groups of rows and
columns that contain non-finite or very large values are multiplied in float32 instead.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from engine.codelets import vector
from engine.codelets.bf16x3_block_sizes import BLOCK, ELEMENTS, K_BLOCK, MOST_COLUMNS
from engine.codelets.build import codelet, inner
from engine.codelets.contract import (
    blocks_of,
    even_cut,
    extents,
    field,
    fill_zero,
    operands,
    pack_panel,
    packed_pitch,
)
from engine.codelets.contract_fields import Field, Layout
from engine.codelets.lazy import types
from engine.codelets.matrix_registers import (
    BLOCK_BYTES,
    BLOCK_K,
    GROUP,
    SUM_PITCH,
    begin_matrices,
    end_matrices,
    multiply_groups,
)
from engine.codelets.memory import I64, Emitter, intrinsic, load_i64, store_i64
from engine.codelets.pack import fill_progression, pack_transposed
from engine.codelets.pack_bf16x3 import (
    SEEN_BYTES,
    UNSCALE,
    forget,
    gather_runs,
    is_whole_as_bf16x3,
    split_rows_of_a,
    split_rows_of_b,
)
from engine.codelets.panel import multiply_panel
from engine.machine_code.abi import RESERVED_SCRATCH

GROUPS = MOST_COLUMNS // GROUP
PAD = 192  # between groups of columns, or all of them would share cache sets

KEPT_GROUPS = ELEMENTS // GROUP // BLOCK_K

# Scratch, after the executor's words.
BF16X3_B = 0
BF16X3_A = BF16X3_B + ELEMENTS // GROUP * BLOCK_BYTES // BLOCK_K + GROUPS * (PAD + BLOCK_BYTES)
SUMS = BF16X3_A + ELEMENTS // GROUP * BLOCK_BYTES // BLOCK_K + KEPT_GROUPS * PAD
PITCH_A = 4 * K_BLOCK + 64  # not a power of two, or the rows would share cache sets
ROWS_OF_A = SUMS + GROUP * SUM_PITCH  # as float32, side by side
ROWS_OF_B = ROWS_OF_A + GROUP * PITCH_A
TABLE_A = ROWS_OF_B + 4 * GROUP * K_BLOCK
TABLE_B = TABLE_A + 8 * GROUP
COLUMN = TABLE_B + 8 * K_BLOCK
SEEN = COLUMN + 8 * GROUP
WHOLE_B = SEEN + GROUPS * SEEN_BYTES  # for each group of columns, whether the split can compute it
WHOLE_A = WHOLE_B + 8 * GROUPS
SCRATCH_BYTES = RESERVED_SCRATCH + WHOLE_A + 8 * KEPT_GROUPS
PACK, PACK_AND_KEEP, KEPT = 0, 1, 2  # how rows of A are packed


def contract_bf16x3_scratch_bytes() -> int:
    """The bytes of scratch that contract_bf16x3 needs, for any parameters."""
    return SCRATCH_BYTES


@intrinsic
def add_or_write(
    typing_context: Any,
    sums: types.Type,
    rows: types.Type,
    columns: types.Type,
    c: types.Type,
    row_c: types.Type,
    accumulate: types.Type,
) -> tuple[Any, Emitter]:
    """C[row_c[m] + 4n] (+)= sums[m, n] * UNSCALE, m < rows <= 32, n < columns <= 32."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        sums, rows, columns, c, row_c, accumulate = arguments
        adds = builder.icmp_signed("!=", accumulate, I64(0))
        masks = [vector.lane_mask(builder, builder.sub(columns, I64(first))) for first in (0, BLOCK)]
        entry, loop, done = builder.block, builder.append_basic_block("rows"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", rows, I64(0)), loop, done)
        builder.position_at_end(loop)
        row = builder.phi(I64)
        entry_c = builder.inttoptr(builder.add(row_c, builder.shl(row, I64(3))), vector.POINTER)
        to = builder.add(c, builder.load(entry_c, align=8, typ=I64))
        source = builder.add(sums, builder.mul(row, I64(SUM_PITCH)))
        for first, mask in zip((0, BLOCK), masks, strict=True):
            value = vector.load_vector(builder, builder.add(source, I64(4 * first)))
            value = builder.fmul(value, ir.Constant(vector.vector_type(), [UNSCALE] * BLOCK))
            address = builder.add(to, I64(4 * first))
            there = builder.select(adds, mask, vector.lane_mask(builder, I64(0)))
            value = builder.fadd(value, vector.load_vector(builder, address, there))
            vector.store_vector(builder, value, address, mask)
        later = builder.add(row, I64(1))
        row.add_incoming(I64(0), entry)
        row.add_incoming(later, loop)
        builder.cbranch(builder.icmp_signed("<", later, rows), loop, done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), emit


@codelet
def contract_bf16x3(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Units lo <= unit < hi of the contraction that `contract_record` describes, in float32 by the bf16x3 split."""
    begin_matrices()
    unit = lo
    while unit < hi:
        row_block, column_block, split, batch = blocks_of(parameters, unit)
        # neighbouring row blocks share the packed B
        run = min(hi - unit, field(parameters, Field.ROW_BLOCKS) - row_block)
        _contract_blocks(parameters, row_block, run, column_block, split, batch, scratch + RESERVED_SCRATCH)
        unit += run
    end_matrices()


@inner
def group_pitch(k: int) -> int:
    """Bytes between packed groups of columns for this many k."""
    return (k + BLOCK_K - 1) // BLOCK_K * BLOCK_BYTES + PAD


@inner
def _contract_blocks(
    parameters: int, row_block: int, run: int, column_block: int, split: int, batch: int, scratch: int
) -> None:
    """`run` row blocks of one column block of one split of k of one batch."""
    a, b, c = operands(parameters, split, batch)
    row, rows, column, columns, k_begin, k_count = extents(parameters, row_block, run, column_block, split)
    b += column * field(parameters, Field.STRIDE_B)
    c += 4 * column
    accumulate = field(parameters, Field.ACCUMULATE)
    if k_count <= 0 and accumulate == 0:
        fill_zero(c, field(parameters, Field.ROW_C) + 8 * row, rows, columns)
    if k_count > 0:
        k_step = even_cut(k_count, K_BLOCK, BLOCK_K)
        limit = min(MOST_COLUMNS, ELEMENTS // k_step // GROUP * GROUP)
        # Rows used by many blocks of columns are packed once if all of them stay in cache beside half a block.
        rows_kept = run * ((field(parameters, Field.ROWS_PER_UNIT) + GROUP - 1) // GROUP * GROUP)
        keeps = columns > 2 * limit and rows_kept * k_step <= ELEMENTS
        column_step = even_cut(columns, limit // GROUP // 2 * GROUP if keeps else limit, GROUP)
        for k in range(0, k_count, k_step):
            k_now = min(k_step, k_count - k)
            adds = accumulate if k == 0 else 1
            for n in range(0, columns, column_step):
                width = min(column_step, columns - n)
                _pack_columns(parameters, b, n, width, k_begin + k, k_now, scratch)
                kept = PACK
                if keeps:
                    kept = PACK_AND_KEEP if n == 0 else KEPT
                _multiply_rows(parameters, a, b, c, row_block, run, n, width, k_begin + k, k_now, adds, kept, scratch)


@inner
def _pack_columns(parameters: int, b: int, column: int, columns: int, k: int, k_count: int, scratch: int) -> None:
    """Packs columns of B in groups, and records which groups can be computed by the split."""
    layout = field(parameters, Field.LAYOUT_B)
    pitch = group_pitch(k_count)
    groups = (columns + GROUP - 1) // GROUP
    for group in range(groups):
        forget(scratch + SEEN + group * SEEN_BYTES)
    if layout == Layout.ROWS or layout == Layout.SCATTERED_ROWS:
        offsets = field(parameters, Field.OFFSET_B) + 8 * k
        split_rows_of_b(b + 4 * column, offsets, k_count, columns, scratch + BF16X3_B, pitch, scratch + SEEN)
    else:
        for group in range(groups):
            width = min(GROUP, columns - group * GROUP)
            target, seen = scratch + BF16X3_B + group * pitch, scratch + SEEN + group * SEEN_BYTES
            fill_progression(scratch + TABLE_B, k_count, packed_pitch(width))
            pack_panel(parameters, b, column + group * GROUP, width, k, k_count, scratch + ROWS_OF_B, scratch + COLUMN)
            split_rows_of_b(scratch + ROWS_OF_B, scratch + TABLE_B, k_count, width, target, pitch, seen)
    for group in range(groups):
        store_i64(scratch + WHOLE_B + 8 * group, is_whole_as_bf16x3(scratch + SEEN + group * SEEN_BYTES))


@inner
def _multiply_rows(
    parameters: int,
    a: int,
    b: int,
    c: int,
    row_block: int,
    run: int,
    column: int,
    columns: int,
    k: int,
    k_count: int,
    accumulate: int,
    kept: int,
    scratch: int,
) -> None:
    """Computes the rows of all units of a run, by groups; groups end where units do, whichever worker has the units."""
    rows_per_unit, all_rows = field(parameters, Field.ROWS_PER_UNIT), field(parameters, Field.ROWS)
    number = 0
    for block in range(row_block, row_block + run):
        end = min(all_rows, (block + 1) * rows_per_unit)
        for row in range(block * rows_per_unit, end, GROUP):
            rows = min(GROUP, end - row)
            packed_a, whole_a = scratch + BF16X3_A + number * group_pitch(k_count), scratch + WHOLE_A + 8 * number
            if kept != KEPT:
                store_i64(whole_a, _pack_group_of_rows(parameters, a, row, rows, k, k_count, packed_a, scratch))
            whole = load_i64(whole_a)
            if kept != PACK:
                number += 1
            row_c = field(parameters, Field.ROW_C) + 8 * row
            for n in range(0, columns, GROUP):
                width = min(GROUP, columns - n)
                to = c + 4 * (column + n)
                if whole != 0 and load_i64(scratch + WHOLE_B + 8 * (n // GROUP)) != 0:
                    packed_b = scratch + BF16X3_B + n // GROUP * group_pitch(k_count)
                    row_blocks, column_blocks = (rows + BLOCK - 1) // BLOCK, (width + BLOCK - 1) // BLOCK
                    blocks_of_k = (k_count + BLOCK_K - 1) // BLOCK_K
                    sums = scratch + SUMS
                    multiply_groups(row_blocks, column_blocks, blocks_of_k, packed_a, packed_b, sums)
                    add_or_write(sums, rows, width, to, row_c, accumulate)
                else:
                    panel = scratch + ROWS_OF_B
                    pack_panel(parameters, b, column + n, width, k, k_count, panel, scratch + COLUMN)
                    row_a = field(parameters, Field.ROW_A) + 8 * row
                    offset_a = field(parameters, Field.OFFSET_A) + 8 * k
                    pitch = packed_pitch(width)
                    multiply_panel(rows, width, k_count, a, row_a, offset_a, panel, pitch, to, row_c, accumulate)


@inner
def _pack_group_of_rows(
    parameters: int, a: int, row: int, rows: int, k: int, k_count: int, target: int, scratch: int
) -> int:
    """Packs rows of A; returns 1 if they can be computed by the split, else 0."""
    row_a, offset_a = field(parameters, Field.ROW_A) + 8 * row, field(parameters, Field.OFFSET_A) + 8 * k
    first = load_i64(offset_a)
    base, table = a + first, row_a
    if field(parameters, Field.RUN_A) < field(parameters, Field.K):
        base, table = scratch + ROWS_OF_A, scratch + TABLE_A
        fill_progression(table, rows, PITCH_A)
        _gather_rows(parameters, a, row_a, offset_a, row, rows, k, k_count, base)
    forget(scratch + SEEN)
    split_rows_of_a(base, table, rows, k_count, target, scratch + SEEN)
    return is_whole_as_bf16x3(scratch + SEEN)


@inner
def _gather_rows(
    parameters: int, a: int, row_a: int, offset_a: int, row: int, rows: int, k: int, k_count: int, target: int
) -> None:
    """target[m * PITCH_A + 4k] = A[row_a[m] + offset_a[k]]."""
    if _lie_together(row_a, rows) != 0:
        for m in range(0, rows, BLOCK):
            source = a + load_i64(row_a + 8 * m)
            pack_transposed(source, offset_a, k_count, min(BLOCK, rows - m), target + m * PITCH_A, PITCH_A)
    else:
        run = field(parameters, Field.RUN_A)
        for m in range(rows):
            gather_runs(a + load_i64(row_a + 8 * m), offset_a, run, k % run, k_count, target + m * PITCH_A)


@inner
def _lie_together(row_a: int, rows: int) -> int:
    """1 if each 16 rows of A are contiguous, else 0."""
    for m in range(1, rows):
        if m % BLOCK != 0 and load_i64(row_a + 8 * m) != load_i64(row_a + 8 * (m - 1)) + 4:
            return 0
    return 1 if rows > 1 else 0
