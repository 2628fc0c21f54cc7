"""Operands of bf16 products as pairs of neighbours along k, for the instruction that adds both products of a pair.

Rows of A whose runs along k are even are read where they are. Rows of B, groups of contiguous rows of A, and B whose
pairs are in place are packed as pairs, in one run where rows of B overlap; other operands are packed as float32, whose
upper halves are then moved together.

Packing of bf16 as pairs of neighbours along k: 32 bits, the first of k in the lower half.
"""

from __future__ import annotations

from engine.codelets.language import vector
from engine.codelets.language.build import inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import I32, I64, POINTER, load_i64, store_f32, store_i64
from engine.codelets.language.record import word
from engine.codelets.products.contract import Operands
from engine.codelets.products.contract_fields import Field, Layout
from engine.codelets.products.pack import LANES, copied_run, fill_progression, packing
from engine.machine_code.llvm import ir

pack_pair_rows, narrow_run = packing("bf16", pairs=True).rows, copied_run("f32", "bf16")
GROUP_BYTES = 4 * LANES  # the pairs of one k of a group of rows


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
    one, other = (builder.inttoptr(each, POINTER) for each in (first, second))
    low = builder.lshr(builder.load(one, align=4, typ=kind), vector.all_lanes(16))
    is_there = builder.icmp_signed("!=", second, I64(0))
    high = builder.load(builder.select(is_there, other, one), align=4, typ=kind)
    high = builder.select(is_there, high, vector.zeros(I32))
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


@inner
def narrow_rows(packed: int, pitch: int, rows: int, k: int) -> None:
    """Makes rows of packed float32 rows of pairs, in place."""
    for m in range(rows):
        row = packed + m * pitch
        if k % 2 != 0:
            store_f32(row + 4 * k, 0.0)
        narrow_run(row, row, (k + 1) // 2 * 2)
