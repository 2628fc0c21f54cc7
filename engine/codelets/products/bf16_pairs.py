"""Operands of bf16 products as pairs of neighbours along k, for the instruction that adds both products of a pair.

Rows of A whose runs along k are even are read where they are. Rows of B, groups of contiguous rows of A, and B whose
pairs are in place are packed as pairs, in one run where rows of B overlap; other operands are packed as float32, whose
upper halves are then moved together.

Packing of bf16 as pairs of neighbours along k: 32 bits, the first of k in the lower half.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.host.rows import word
from engine.codelets.language import vector
from engine.codelets.language.build import Inner, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import I32, I64, POINTER, load_i64, store_f32, store_i64
from engine.codelets.products.contract import Block, Operands, Parts
from engine.codelets.products.contract_f32 import begins_group, offsets_of_a
from engine.codelets.products.contract_fields import Field, Layout
from engine.codelets.products.pack import LANES, PANEL, copied_run, fill_progression, join_runs, packed_pitch, packing
from engine.codelets.rows.offset_tables import fill_table
from engine.machine_code.llvm import ir

_pair_packing = packing("bf16", pairs=True)
pack_pair_rows, pack_pair_panel = _pair_packing.rows, _pair_packing.panel
GROUP_BYTES = 4 * LANES  # the pairs of one k of a group of rows


@inner
def pairs_overlap(at: Operands, width: int, k_count: int) -> bool:
    """Whether pairs of evenly spaced rows of B overlap, or are as close as packed pairs: they are joined in one run."""
    close = 0 <= 4 * word(at.parameters, Field.PITCH_B) <= packed_pitch(width)
    return word(at.parameters, Field.LAYOUT_B) == Layout.ROWS and close and k_count % 2 == 0


@inner
def join_overlapping(at: Operands, column: int, width: int, k: int, k_count: int, target: int) -> None:
    """Packs the pairs of rows k + 2 i and k + 2 i + 1 as row i of the target; its rows are 4 * PITCH_B bytes apart."""
    pitch = word(at.parameters, Field.PITCH_B)
    first = at.b + 2 * column + load_i64(word(at.parameters, Field.OFFSET_B) + 8 * k)
    join_runs(first, first + pitch, target, (k_count - 2) * pitch // 2 + width)


@inner
def has_pair_panels(at: Operands, k: int, k_count: int) -> bool:
    """Whether B's rows are contiguous, or its pairs are in place along k."""
    layout = word(at.parameters, Field.LAYOUT_B)
    if layout == Layout.ROWS or layout == Layout.SCATTERED_ROWS:
        return True
    if layout == Layout.ELEMENTS or k_count % 2 != 0:
        return False
    return layout == Layout.TRANSPOSED or (k % 2 == 0 and word(at.parameters, Field.PITCH_B) % 2 == 0)


@inner
def pack_pair_groups(
    a: int, row_a: int, offset_a: int, rows: int, k: int, target: int, to_rows: int, to_offsets: int
) -> None:
    """Packs each LANES rows of A, which are contiguous, one pair of k after the other; writes row and k offsets."""
    pairs = (k + 1) // 2
    for row in range(0, rows, LANES):
        group = target + row // LANES * pairs * GROUP_BYTES
        pack_pair_rows(a + load_i64(row_a + 8 * row), offset_a, k, min(LANES, rows - row), group, GROUP_BYTES)
    for m in range(rows):
        store_i64(to_rows + 8 * m, m // LANES * pairs * GROUP_BYTES + 4 * (m % LANES))
    fill_progression(to_offsets, pairs, GROUP_BYTES)


@intrinsic
def pair_lanes(builder: ir.IRBuilder, first: ir.Value, second: ir.Value, target: ir.Value) -> None:
    """Stores at `target` the pairs of bf16 in the float32 lanes of two vectors; `second` 0 stands for zeros."""
    kind = vector.vector_type(I32)
    upper = ir.Constant(kind, [16] * LANES)
    one, other = (builder.inttoptr(each, POINTER) for each in (first, second))
    low = builder.lshr(builder.load(one, align=4, typ=kind), upper)
    is_there = builder.icmp_signed("!=", second, I64(0))
    high = builder.load(builder.select(is_there, other, one), align=4, typ=kind)
    high = builder.select(is_there, high, ir.Constant(kind, [0] * LANES))
    builder.store(builder.or_(low, high), builder.inttoptr(target, POINTER), align=4)


@inner
def pair_rows(panel: int, k_count: int, pitch: int) -> None:
    """Makes row i of a packed panel of float32 the pairs of its rows 2 i and 2 i + 1."""
    for i in range(0, k_count, 2):
        first, target = panel + i * pitch, panel + i // 2 * pitch
        second = first + pitch if i + 1 < k_count else 0
        for at in range(0, pitch, 4 * LANES):
            pair_lanes(first + at, second + at if second != 0 else 0, target + at)


@inner
def is_read_in_place(parameters: int) -> bool:
    """Whether A has whole pairs, none of which is split between units along k."""
    parts = word(parameters, Field.K_SPLITS) > 1 and word(parameters, Field.K_PER_UNIT) % 2 != 0
    return word(parameters, Field.RUN_A) % 2 == 0 and word(parameters, Field.K) % 2 == 0 and not parts


@cache
def parts_of_pairs(plain: Parts, multiply: Inner, row_a: int, offsets: int, packed_a: int, column: int) -> Parts:
    """Makes the parts of a product of pairs from `plain`, which widens; the last four arguments are scratch offsets."""
    pack_panel, pack_runs = packing("bf16").panel, packing("bf16").runs
    narrow_run = copied_run("f32", "bf16")

    @inner
    def pack_columns(at: Operands, block: Block, plan: int) -> None:
        offsets = at.scratch + column
        if pairs_overlap(at, block.columns, block.k_count):
            join_overlapping(at, block.column, block.columns, block.k, block.k_count, at.scratch)
        elif has_pair_panels(at, block.k, block.k_count):
            pack_pair_panel(at, block.column, block.columns, block.k, block.k_count, at.scratch, offsets)
        else:
            pack_panel(at, block.column, block.columns, block.k, block.k_count, at.scratch, offsets)
            pair_rows(at.scratch, block.k_count, packed_pitch(block.columns))

    @inner
    def panel(at: Operands, block: Block, first: int, plan: int) -> tuple[int, int]:
        if pairs_overlap(at, block.columns, block.k_count):
            return at.scratch, 4 * word(at.parameters, Field.PITCH_B)
        return at.scratch, packed_pitch(block.columns)

    @inner
    def pack_rows(at: Operands, block: Block, number: int, again: bool, plan: int) -> tuple[int, int, int]:
        rows, k_count, pairs = block.rows, block.k_count, (block.k_count + 1) // 2
        source_rows, offset_a = offsets_of_a(at, block)
        to_rows, to_offsets, packed = at.scratch + row_a, at.scratch + offsets, at.scratch + packed_a
        in_place = is_read_in_place(at.parameters)
        if not again and in_place:
            for i in range(pairs):
                store_i64(to_offsets + 8 * i, load_i64(offset_a + 16 * i))
        elif not again and begins_group(at.parameters, block.row):
            pack_pair_groups(at.a, source_rows, offset_a, rows, k_count, packed, to_rows, to_offsets)
        elif not again:
            pitch, run = packed_pitch(k_count) + 64, word(at.parameters, Field.RUN_A)
            pack_runs(at.a, source_rows, offset_a, run, block.k % run, rows, k_count, packed, pitch)
            for m in range(rows):
                if k_count % 2 != 0:
                    store_f32(packed + m * pitch + 4 * k_count, 0.0)
                narrow_run(packed + m * pitch, packed + m * pitch, 2 * pairs)
            fill_table(to_rows, rows, pitch)
            fill_table(to_offsets, pairs, 4)
        if in_place:
            return at.a, source_rows, to_offsets
        return packed, to_rows, to_offsets

    return plain._replace(width=PANEL, pack_columns=pack_columns, pack_rows=pack_rows, panel=panel, multiply=multiply)
