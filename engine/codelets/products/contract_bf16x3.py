"""The codelet of large float32 products on matrix registers, by the bf16x3 split: six bfloat16 products for each.

A float32 is the sum of three bfloat16 parts. Of the nine products of the parts of two numbers, the six largest are
summed in float32: the others are at most 2**-24 of the product, no more than the error of rounding it. Groups of rows
and columns that contain non-finite or very large values are multiplied in float32 instead.
"""

from __future__ import annotations

from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I64, load_i64, loaded_i64, store_i64
from engine.codelets.language.record import word
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.products.contract import Block, Operands, Parts, blocked, even_cut, nothing_ahead, over_units
from engine.codelets.products.contract_f32 import offsets_of_a
from engine.codelets.products.contract_fields import Field, Layout
from engine.codelets.products.micro_kernel import library
from engine.codelets.products.pack import fill_progression, packed_pitch, packing
from engine.codelets.products.pack_bf16x3 import (
    BLOCK,
    BLOCK_BYTES,
    BLOCK_K,
    ELEMENTS,
    GROUP,
    K_BLOCK,
    MOST_COLUMNS,
    PAD,
    SEEN_BYTES,
    SUM_PITCH,
    UNSCALE,
    WHOLE,
    begin_matrices,
    end_matrices,
    forget,
    group_pitch,
    groups_of,
    is_whole_as_bf16x3,
    multiply_groups,
    split_rows_of_a,
    split_rows_of_b,
    whole_blocks,
)
from engine.codelets.products.panel import NOTHING_AHEAD, panels
from engine.machine_code.llvm import ir

GROUPS = MOST_COLUMNS // GROUP

KEPT_GROUPS = ELEMENTS // GROUP // BLOCK_K

PITCH_A = 4 * K_BLOCK + 64  # not a power of two, or the rows would share cache sets
_layout = ScratchLayout()
BF16X3_B = _layout.area(ELEMENTS // GROUP * BLOCK_BYTES // BLOCK_K + GROUPS * (PAD + BLOCK_BYTES))
BF16X3_A = _layout.area(ELEMENTS // GROUP * BLOCK_BYTES // BLOCK_K + KEPT_GROUPS * PAD)
SUMS = _layout.area(GROUP * SUM_PITCH)
ROWS_OF_A = _layout.area(GROUP * PITCH_A)  # as float32, one after another
ROWS_OF_B = _layout.area(4 * GROUP * K_BLOCK)
TABLE_A = _layout.area(8 * GROUP)
TABLE_B = _layout.area(8 * K_BLOCK)
COLUMN = _layout.area(8 * GROUP)
SEEN = _layout.area(GROUPS * SEEN_BYTES)
BF16X3_SCRATCH = _layout.space()

_packing = packing("f32")
pack_groups, pack_runs, pack_panel = _packing.groups, _packing.runs, _packing.panel
multiply_panel = panels("f32")


@intrinsic
def add_or_write(
    builder: ir.IRBuilder,
    sums: ir.Value,
    rows: ir.Value,
    columns: ir.Value,
    c: ir.Value,
    row_c: ir.Value,
    accumulate: ir.Value,
) -> None:
    """C[row_c[m] + 4n] (+)= sums[m, n] * UNSCALE, m < rows <= 32, n < columns <= 32."""
    adds = builder.icmp_signed("!=", accumulate, I64(0))
    masks = [vector.lane_mask(builder, builder.sub(columns, I64(first))) for first in (0, BLOCK)]
    loop = EmittedLoop(builder, "rows", I64(0), rows, I64(1), may_be_empty=True)
    row = loop.at
    to = builder.add(c, loaded_i64(builder, builder.add(row_c, builder.shl(row, I64(3)))))
    source = builder.add(sums, builder.mul(row, I64(SUM_PITCH)))
    for first, mask in zip((0, BLOCK), masks, strict=True):
        value = vector.load_vector(builder, builder.add(source, I64(4 * first)))
        value = builder.fmul(value, vector.all_lanes(UNSCALE, F32))
        address = builder.add(to, I64(4 * first))
        there = builder.select(adds, mask, vector.lane_mask(builder, I64(0)))
        value = builder.fadd(value, vector.load_vector(builder, address, there))
        vector.store_vector(builder, value, address, mask)
    loop.close()


@inner
def k_step(at: Operands, block: Block) -> int:
    """The number of k in a block."""
    return k_in_block(block.k_count)


@inner
def k_in_block(k: int) -> int:
    """The number of k in each of the blocks of so many k."""
    return even_cut(k, K_BLOCK, BLOCK_K)


@inner
def steps(at: Operands, block: Block) -> tuple[int, int, int]:
    """Rows and columns that are packed at a time; the plan is 1 if packed rows are kept for all blocks of columns.

    Rows that many blocks of columns use are packed once if all of them stay in cache beside half a block.
    """
    padded_k, rows_per_unit = whole_blocks(block.k_count) * BLOCK_K, word(at.parameters, Field.ROWS_PER_UNIT)
    limit = min(MOST_COLUMNS, ELEMENTS // padded_k // GROUP * GROUP)
    padded_rows = (block.rows + rows_per_unit - 1) // rows_per_unit * (groups_of(rows_per_unit) * GROUP)
    keeps = block.columns > 2 * limit and padded_rows * padded_k <= ELEMENTS
    column_step = even_cut(block.columns, limit // GROUP // 2 * GROUP if keeps else limit, GROUP)
    return GROUP, column_step, 1 if keeps else 0


@inner
def pack_columns(at: Operands, block: Block, plan: int) -> None:
    """Packs columns of B, unless they were packed before."""
    if word(at.parameters, Field.PARTS_B) == 0:
        split_columns(at, block.column, block.columns, block.k, block.k_count, at.scratch + BF16X3_B)


@inner
def split_columns(at: Operands, column: int, columns: int, k: int, k_count: int, packed: int) -> None:
    """Packs columns of B in groups, and notes in each of them whether it can be computed by the split."""
    scratch, layout = at.scratch, word(at.parameters, Field.LAYOUT_B)
    pitch, groups = group_pitch(k_count), groups_of(columns)
    for group in range(groups):
        forget(scratch + SEEN + group * SEEN_BYTES)
    if layout == Layout.ROWS or layout == Layout.SCATTERED_ROWS:
        offsets = word(at.parameters, Field.OFFSET_B) + 8 * k
        split_rows_of_b(at.b + 4 * column, offsets, k_count, columns, packed, pitch, scratch + SEEN)
    else:
        for group in range(groups):
            width = min(GROUP, columns - group * GROUP)
            target, seen = packed + group * pitch, scratch + SEEN + group * SEEN_BYTES
            fill_progression(scratch + TABLE_B, k_count, packed_pitch(width))
            pack_panel(at, column + group * GROUP, width, k, k_count, scratch + ROWS_OF_B, scratch + COLUMN)
            split_rows_of_b(scratch + ROWS_OF_B, scratch + TABLE_B, k_count, width, target, pitch, seen)
    for group in range(groups):
        store_i64(packed + group * pitch + WHOLE, is_whole_as_bf16x3(scratch + SEEN + group * SEEN_BYTES))


@inner
def panel(at: Operands, block: Block, column: int, plan: int) -> tuple[int, int]:
    """A packed group of columns, and 1 if the split can compute it."""
    before = word(at.parameters, Field.PARTS_B)
    if before != 0:
        packed = before + block.column // GROUP * group_pitch(word(at.parameters, Field.K))
        packed += block.k // BLOCK_K * BLOCK_BYTES
    else:
        packed = at.scratch + BF16X3_B + (block.column - column) // GROUP * group_pitch(block.k_count)
    return packed, load_i64(packed + WHOLE)


@inner
def pack_rows(at: Operands, block: Block, number: int, again: bool, plan: int) -> tuple[int, int, int]:
    """A packed group of rows, and 1 if the split can compute it."""
    rows_per_unit = word(at.parameters, Field.ROWS_PER_UNIT)
    group = number // rows_per_unit * groups_of(rows_per_unit) + number % rows_per_unit // GROUP if plan != 0 else 0
    packed = at.scratch + BF16X3_A + group * group_pitch(block.k_count)
    if plan == 0 or not again:
        store_i64(packed + WHOLE, _pack_group_of_rows(at, block, packed))
    return packed, load_i64(packed + WHOLE), 0


@inner
def _pack_group_of_rows(at: Operands, block: Block, target: int) -> int:
    """Packs rows of A; returns 1 if they can be computed by the split, else 0."""
    row_a, offset_a = offsets_of_a(at, block)
    base, table, run = at.a + load_i64(offset_a), row_a, word(at.parameters, Field.RUN_A)
    if run < word(at.parameters, Field.K):
        base, table = at.scratch + ROWS_OF_A, at.scratch + TABLE_A
        fill_progression(table, block.rows, PITCH_A)
        if _are_contiguous(row_a, block.rows) != 0:
            pack_groups(at.a, row_a, offset_a, block.rows, block.k_count, base, PITCH_A)
        else:
            pack_runs(at.a, row_a, offset_a, run, block.k % run, block.rows, block.k_count, base, PITCH_A)
    forget(at.scratch + SEEN)
    split_rows_of_a(base, table, block.rows, block.k_count, target, at.scratch + SEEN)
    return is_whole_as_bf16x3(at.scratch + SEEN)


@inner
def multiply(
    at: Operands,
    block: Block,
    accumulate: int,
    packed_rows: tuple[int, int, int],
    packed_panel: tuple[int, int],
    prefetched: tuple[int, int, int, int],
) -> None:
    """Multiplies two groups by the split, or in the micro kernels if the split cannot compute one of them."""
    _, rows, column, columns, k, k_count = block
    packed_a, whole_a, _ = packed_rows
    packed_b, whole_b = packed_panel
    c, row_c = at.c + 4 * column, word(at.parameters, Field.ROW_C) + 8 * block.row
    if whole_a != 0 and whole_b != 0:
        row_blocks, column_blocks, sums = (rows + BLOCK - 1) // BLOCK, (columns + BLOCK - 1) // BLOCK, at.scratch + SUMS
        multiply_groups(4 * row_blocks + column_blocks, whole_blocks(k_count), packed_a, packed_b, sums)
        add_or_write(sums, rows, columns, c, row_c, accumulate)
    else:
        start, in_place = at.scratch + ROWS_OF_B, (at.a, *offsets_of_a(at, block))
        pack_panel(at, column, columns, k, k_count, start, at.scratch + COLUMN)
        packed = start, packed_pitch(columns)
        multiply_panel(rows, columns, k_count, in_place, packed, NOTHING_AHEAD, NOTHING_AHEAD, c, row_c, accumulate)


@inner
def _are_contiguous(row_a: int, rows: int) -> int:
    """Returns 1 if the rows of A are contiguous in each group of 16, else 0."""
    for m in range(1, rows):
        if m % BLOCK != 0 and load_i64(row_a + 8 * m) != load_i64(row_a + 8 * (m - 1)) + 4:
            return 0
    return 1 if rows > 1 else 0


# Groups of rows end where units do, whichever worker computes the units.
contract_units = over_units(
    blocked(Parts(GROUP, 4, True, k_step, steps, pack_columns, pack_rows, panel, nothing_ahead, multiply))
)


def _contract_bf16x3(parameters: int, lo: int, hi: int, scratch: int) -> None:
    begin_matrices()
    contract_units(parameters, lo, hi, scratch)
    end_matrices()


contract_bf16x3 = Codelet(_contract_bf16x3, "contract_bf16x3", (library("f32"),), in_vectors=True)
"""Computes units lo <= unit < hi of the contraction of a `contract_record`, in float32 by the bf16x3 split."""
