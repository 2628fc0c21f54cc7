"""The codelet that computes every float32 dot and convolution, as an indexed contraction.

Sizes of blocks of float32 products by the second-level cache. They never change the order of sums.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.memory import load_i64
from engine.codelets.language.record import word
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.products.contract import Block, Following, Operands, Parts, blocked, even_cut, over_units
from engine.codelets.products.contract_fields import PACK_ROWS, Field, Layout
from engine.codelets.products.micro_kernel import library
from engine.codelets.products.pack import LANES, PANEL, fill_progression, packed_pitch, packing
from engine.codelets.products.panel import panels
from engine.codelets.products.tail_columns import multiply_tail, pack_tail, tail_columns, tail_scratch
from engine.machine_code.caches import LARGE, second_level
from engine.machine_code.processor import masks_are_cheap
from engine.program.work.offsets import GROUP

WIDE = 16  # lanes of AVX-512
MOST_FLOATS = 1 << 17  # of packed panels, in any cache


class BlockSizes(NamedTuple):
    """Sizes of blocks of A. Rows of the largest stream past packed panels of B; past other blocks the panels stream."""

    b_floats: int
    """Elements of packed panels of B, which stay in the second-level cache while rows of A stream."""
    group_rows: int
    """Rows multiplied by all packed panels before the next rows are: whole kernels."""
    least_rows: int
    """Rows of a block from which they stream; fewer stay in the cache."""
    least_size: int
    """Rows and columns together beyond which rows stream: blocks of A and B of fewer stay in the cache anyway."""
    least_bytes: int
    """Bytes of a block of A beyond which its rows stream."""
    line_columns: int
    """Columns up to which packed A stays in lines of rows, and is not transposed: each k reads a line of it."""


def block_sizes(cache_bytes: int, lanes: int) -> BlockSizes:
    """Chooses sizes for a second-level cache and vectors of so many lanes.

    Those for a large cache are from two cores of a Xeon with AVX-512 and 2 MiB, those for a small one or short vectors
    from two cores of a Zen 3 with 512 KiB and of a Zen 4 with 1 MiB and AVX2, all of November 2026. Panels leave small
    caches sooner, and few rows prefetch only a part of the next panel, so groups are larger for small caches.
    Transposing A pays for more columns than line_columns, because rows of A are then read with fewer misses. With 8
    lanes it pays for any number of columns.
    """
    if cache_bytes >= LARGE and lanes >= WIDE:
        return BlockSizes(MOST_FLOATS, group_rows=24, least_rows=384, least_size=1024, least_bytes=0, line_columns=256)
    half = cache_bytes // 2
    floats = min(half // 4, MOST_FLOATS)
    return BlockSizes(floats, group_rows=48, least_rows=0, least_size=0, least_bytes=half, line_columns=0)


MASKED = masks_are_cheap()
NARROW = PANEL < 64  # panels of fewer registers or of shorter ones than AVX-512's
# Tuned on two cores of a Xeon with AVX-512 (48 KiB first-level, 2 MiB second-level cache), November 2026,
# by medians of alternating runs of cubes up to 1536^3 and products of training; rows, columns and k are counts.
K_BLOCK = 512  # maximum: a packed panel of B is then 128 kB, and C is seldom read and written
APART_K_BLOCK = 256  # maximum where each k of A is a cache line of its own, or is packed: few of these lines fit
# For so few rows that a packed panel of B should be in the first-level cache from the start; by its width.
NEAR_K_BLOCK = 256 if NARROW else 128
FEW_ROWS = 256  # of all units together
B_FLOATS, GROUP_ROWS, LEAST_ROWS, LEAST_SIZE, LEAST_BYTES, LINE_COLUMNS = block_sizes(second_level(), LANES)
PACKED_B_FLOATS = 1 << 18  # of packed panels of B if A is packed, which happens once for each block of B
PACKED_GROUP_ROWS = 48  # multiplied by all packed panels before the next rows are: whole kernels, and whole groups
LINE_ROWS = 96  # likewise for A packed by lines, which are LINE_PITCH apart
LINE_PITCH = 4 * LINE_ROWS
MANY_ROWS = 384  # minimum for streaming packed rows past panels; panels stream past fewer rows
LONG_K = 128  # minimum k of a block that counts as long
LINE = 64  # bytes of a cache line that is prefetched
AHEAD_PITCH = 24  # bytes prefetched for each k at two places, for the next rows; more would wait for each other
AHEAD_BLOCKS = 3  # blocks of rows of a panel during which these bytes are prefetched
DENSE_PITCH = 256  # bytes between rows of B up to which a copy is no faster to read; twice as many in long blocks
DENSE_BYTES = 1 << 15  # likewise of B's rows in a block of k, if panels are narrow: its lines then share few cache sets
PACKED_PITCH_A = 4 * K_BLOCK + 64  # not a power of two, or the rows would share cache sets
_layout = ScratchLayout()
PACKED_B = _layout.area(4 * PACKED_B_FLOATS)
PACKED_K = _layout.area(8 * K_BLOCK)  # offsets of packed A along k
PACKED_ROW = _layout.area(8 * MANY_ROWS)  # row offsets of packed A
COLUMN = _layout.area(8 * PANEL)  # B's column offsets
PACKED_A = _layout.area(MANY_ROWS * PACKED_PITCH_A)
TAIL = _layout.area(tail_scratch(K_BLOCK * PANEL // LANES))
CONTRACT_SCRATCH = _layout.space()
# Bits of the plan of a block of k.
PACKS_A, BY_ROWS, PACKS_B, BY_LINES = 1, 2, 4, 8  # BY_ROWS: rows stream past panels; BY_LINES: A is not transposed
_packing = packing("f32")
pack_groups, pack_lines, pack_panel = _packing.groups, _packing.rows, _packing.panel
multiply_panel = panels("f32")


@inner
def k_step(at: Operands, block: Block) -> int:
    """The number of k in a block."""
    padded, most = packed_pitch(block.columns) // 4, longest_block(at.parameters, block.k, block.k_count)
    return even_cut(block.k_count, max(most, most * PANEL // padded), LANES)


@inner
def longest_block(parameters: int, k: int, k_count: int) -> int:
    """The largest number of k in a block of PANEL columns."""
    first = word(parameters, Field.OFFSET_A) + 8 * k
    if k_count < 2 or load_i64(first + 8) - load_i64(first) == 4:
        return K_BLOCK
    few_rows = word(parameters, Field.PACK_A) != 0 and word(parameters, Field.ROWS) <= FEW_ROWS
    return NEAR_K_BLOCK if few_rows else APART_K_BLOCK


@inner
def steps(at: Operands, block: Block) -> tuple[int, int, int]:
    """Rows and columns that are packed at a time, and the plan."""
    rows, columns, k_count = block.rows, block.columns, block.k_count
    packs_a = begins_group(at.parameters, block.row) and columns > PANEL and k_count >= LANES
    plan = (PACKS_A if packs_a else 0) | (PACKS_B if packs_b(at.parameters, columns, k_count, rows) else 0)
    by_lines = packs_a and columns <= LINE_COLUMNS
    if by_lines:
        plan |= BY_LINES
    if columns <= PANEL or not (streams_packed(rows, by_lines) if packs_a else streams(rows, columns, k_count)):
        return rows, PANEL, plan
    limit = (PACKED_B_FLOATS if packs_a else B_FLOATS) // k_count // PANEL
    column_step = even_cut(columns, max(1, limit) * PANEL, PANEL)
    return rows_together(plan), column_step, plan | BY_ROWS


@inner
def streams_packed(rows: int, by_lines: int) -> bool:
    """Whether packed rows of A stream past panels."""
    return rows >= (LINE_ROWS if by_lines else MANY_ROWS)


@inner
def streams(rows: int, columns: int, k_count: int) -> bool:
    """Whether rows of A in place stream past panels, as they would not stay in the cache."""
    return rows >= LEAST_ROWS and rows + columns > LEAST_SIZE and 4 * rows * k_count > LEAST_BYTES


@inner
def rows_together(plan: int) -> int:
    """The number of rows of A that all panels multiply before they multiply the next rows."""
    if plan & BY_LINES:
        return LINE_ROWS
    return PACKED_GROUP_ROWS if plan & PACKS_A else GROUP_ROWS


@inner
def begins_group(parameters: int, row: int) -> bool:
    """Whether this row of A begins a group of contiguous rows that are to be packed."""
    group = word(parameters, Field.PACK_A)
    return group != 0 and row % max(group, 1) == 0


@inner
def packs_b(parameters: int, columns: int, k_count: int, rows: int) -> bool:
    """Whether panels of B are packed; they are not if B itself is as fast to read."""
    pitch = word(parameters, Field.PITCH_B)
    dense = pitch % 64 == 0 and 0 <= pitch <= longest_pitch(k_count)
    readable = MASKED or columns % LANES == 0
    if word(parameters, Field.LAYOUT_B) == Layout.PANELS:
        return False
    return word(parameters, Field.LAYOUT_B) != Layout.ROWS or not (dense or rows < PACK_ROWS) or not readable


@inner
def longest_pitch(k_count: int) -> int:
    """The most bytes between rows of B in place."""
    if NARROW:
        return max(4 * PANEL, min(DENSE_PITCH, DENSE_BYTES // max(k_count, 1)))
    return 2 * DENSE_PITCH if k_count > LONG_K else DENSE_PITCH


@inner
def pack_columns(at: Operands, block: Block, plan: int) -> None:
    """Packs panels of B, one after the other, and the last columns along k if their lanes are terms."""
    pack_tail(at, block, at.scratch + TAIL)
    if plan & PACKS_B:
        for n in range(0, block.columns, PANEL):
            target, width = at.scratch + PACKED_B + 4 * n * block.k_count, min(PANEL, block.columns - n)
            pack_panel(at, block.column + n, width, block.k, block.k_count, target, at.scratch + COLUMN)


@inner
def panel(at: Operands, block: Block, column: int, plan: int) -> tuple[int, int]:
    """The address and pitch of a panel of B, which was packed here or before, or is in place."""
    if plan & PACKS_B:
        return at.scratch + PACKED_B + 4 * (block.column - column) * block.k_count, packed_pitch(block.columns)
    if word(at.parameters, Field.LAYOUT_B) == Layout.PANELS:
        return at.b + 4 * (block.column * word(at.parameters, Field.K) + PANEL * block.k), 4 * PANEL
    offset = load_i64(word(at.parameters, Field.OFFSET_B) + 8 * block.k)
    return at.b + 4 * block.column + offset, word(at.parameters, Field.PITCH_B)


@inner
def offsets_of_a(at: Operands, block: Block) -> tuple[int, int]:
    """The addresses of the block's row offsets and k offsets."""
    return word(at.parameters, Field.ROW_A) + 8 * block.row, word(at.parameters, Field.OFFSET_A) + 8 * block.k


@inner
def pack_rows(at: Operands, block: Block, number: int, again: bool, plan: int) -> tuple[int, int, int]:
    """Rows of A, packed or in place."""
    row_a, offset_a = offsets_of_a(at, block)
    if not plan & PACKS_A:
        return at.a, row_a, offset_a
    packed, packed_row, packed_k = at.scratch + PACKED_A, at.scratch + PACKED_ROW, at.scratch + PACKED_K
    by_lines = plan & BY_LINES
    if number == 0 and not again:
        fill_progression(packed_row, block.rows, 4 if by_lines else PACKED_PITCH_A)
        fill_progression(packed_k, block.k_count, LINE_PITCH if by_lines else 4)
    if by_lines:
        together = block.rows if word(at.parameters, Field.PACK_A) == 1 else GROUP
        if plan & BY_ROWS or not again:
            for row in range(0, block.rows, together):
                group, count = at.a + load_i64(row_a + 8 * row), min(together, block.rows - row)
                pack_lines(group, offset_a, block.k_count, count, packed + 4 * row, LINE_PITCH)
    elif plan & BY_ROWS or not again:
        pack_groups(at.a, row_a, offset_a, block.rows, block.k_count, packed, PACKED_PITCH_A)
    return packed, packed_row, packed_k


@inner
def ahead(at: Operands, block: Block, number: int, following: Following, plan: int) -> tuple[int, int, int, int]:
    """The next rows of A, prefetched with the first panel; with the last rows, panel `number` of the next columns.

    After the last columns the next rows are the next unit's, which this worker may compute.
    """
    if following.row >= 0 and plan & PACKS_A and number == 0:
        return next_rows(at, following.row, block.k, block.k_count, rows_together(plan))
    packed_before = word(at.parameters, Field.LAYOUT_B) == Layout.PANELS
    if following.row < 0 and following.column >= 0 and (plan & PACKS_B or packed_before):
        return next_panel(at, following.column + PANEL * number, following.k)
    next_row = block.row + block.rows
    if following.row < 0 and following.column < 0 and plan & PACKS_A and next_row < word(at.parameters, Field.ROWS):
        return next_rows(at, next_row, block.k, block.k_count, rows_together(plan))
    return 0, 0, 0, 0


@inner
def next_rows(at: Operands, row: int, k: int, k_count: int, rows: int) -> tuple[int, int, int, int]:
    """Lines of a group of rows of A that are contiguous for each k; none if the k are not evenly spaced."""
    first = word(at.parameters, Field.OFFSET_A) + 8 * k
    pitch, length = load_i64(first + 8) - load_i64(first), load_i64(first + 8 * (k_count - 1)) - load_i64(first)
    blocks = (4 * rows + 2 * LINE - 1) // (2 * LINE) if length == pitch * (k_count - 1) else 0
    return at.a + load_i64(word(at.parameters, Field.ROW_A) + 8 * row) + load_i64(first), LINE, pitch, blocks


@inner
def next_panel(at: Operands, column: int, k: int) -> tuple[int, int, int, int]:
    """Lines of a panel of B: some columns for each k, or lines of a transposed B's columns, which several k share."""
    if column >= word(at.parameters, Field.COLUMNS):
        return 0, 0, 0, 0
    layout, stride = word(at.parameters, Field.LAYOUT_B), word(at.parameters, Field.STRIDE_B)
    first = at.b + stride * column + load_i64(word(at.parameters, Field.OFFSET_B) + 8 * k)
    blocks = max(1, 4 * PANEL // (2 * LINE))
    if layout == Layout.PANELS:
        return at.b + 4 * (column * word(at.parameters, Field.K) + PANEL * k), LINE, 4 * PANEL, blocks
    if layout == Layout.ROWS:
        return first, LINE, word(at.parameters, Field.PITCH_B), blocks
    if layout == Layout.TRANSPOSED:
        return first, stride, 4, PANEL // 2
    return 0, 0, 0, 0


@inner
def rows_for_what_follows(at: Operands, block: Block) -> tuple[int, int, int, int]:
    """A part of this unit's rows of one of the arrays that are read after it; the last panels share all parts."""
    arrays, columns = word(at.parameters, Field.AHEAD_COUNT), word(at.parameters, Field.COLUMNS)
    if arrays == 0 or block.k + block.k_count < word(at.parameters, Field.K):
        return 0, 0, 0, 0
    second = AHEAD_PITCH * block.k_count
    most, size = 2 * AHEAD_BLOCKS * second, 4 * columns * block.rows
    parts = (size + most - 1) // most
    number = block.column // PANEL - (columns // PANEL - parts * arrays)
    if number < 0:
        return 0, 0, 0, 0
    array = load_i64(at.parameters + 8 * (Field.AHEAD_0 + number % arrays))
    pitch = load_i64(at.parameters + 8 * (Field.AHEAD_PITCH_0 + number % arrays))
    begin = number // arrays * most
    if begin >= pitch * block.rows:
        return 0, 0, 0, 0
    return array + pitch * block.row + begin, second, AHEAD_PITCH, AHEAD_BLOCKS


@inner
def multiply(
    at: Operands,
    block: Block,
    accumulate: int,
    packed_rows: tuple[int, int, int],
    packed_panel: tuple[int, int],
    prefetched: tuple[int, int, int, int],
) -> None:
    """Multiplies in the micro kernels, which store to C itself."""
    rows, columns, k = block.rows, block.columns, block.k_count
    c, row_c = at.c + 4 * block.column, word(at.parameters, Field.ROW_C) + 8 * block.row
    tail = tail_columns(at.parameters, block)
    whole = columns - tail
    if whole:
        then_prefetched = rows_for_what_follows(at, block)
        multiply_panel(rows, whole, k, packed_rows, packed_panel, prefetched, then_prefetched, c, row_c, accumulate)
    if tail:
        last = packed_panel[0] + 4 * whole, packed_panel[1]
        multiply_tail(at, tail, rows, k, packed_rows, last, c + 4 * whole, row_c, accumulate, at.scratch + TAIL)


contract = blocked(Parts(PANEL, 4, False, k_step, steps, pack_columns, pack_rows, panel, ahead, multiply))
contract_units = over_units(contract, merges_columns=True, least_merged=PANEL)


def _contract_f32(parameters: int, lo: int, hi: int, scratch: int) -> None:
    contract_units(parameters, lo, hi, scratch)


contract_f32 = Codelet(_contract_f32, "contract_f32", (library("f32"),), in_vectors=True)
"""Computes units lo <= unit < hi of the contraction that `contract_record` describes, in float32."""
