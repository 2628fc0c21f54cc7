"""Contractions of 16-bit floats: the float32 micro kernels, with results rounded once at the end.

A and B are widened while they are packed, B by the kernels that multiply the first rows if they have time for it, and C
is accumulated in scratch. Where convolutions read elements of A many times, or rows of A or B are short, the whole
range of memory that contains them is widened once and read with its own strides.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.language.build import Codelet, Inner, inner
from engine.codelets.language.memory import load_i64, store_i64
from engine.codelets.language.record import word
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.language.vector import BYTES
from engine.codelets.products import contract_f32
from engine.codelets.products.bf16_pairs import (
    has_pair_panels,
    is_read_in_place,
    narrow_rows,
    pack_pair_groups,
    pair_rows,
)
from engine.codelets.products.contract import Block, Operands, Parts, blocked, even_cut, nothing_ahead, over_units
from engine.codelets.products.contract_f32 import MASKED, begins_group, offsets_of_a
from engine.codelets.products.contract_fields import PACK_ROWS, Field, Layout
from engine.codelets.products.micro_kernel import AS_HALF, library
from engine.codelets.products.pack import LANES, LEAST_RUN, PANEL, copied_run, join_runs, packed_pitch, packing
from engine.codelets.products.panel import NOTHING_AHEAD, panels
from engine.codelets.rows.offset_tables import double_table, fill_table, greatest_entry, least_entry

# Tuned on two cores of a Xeon with AVX-512 (48 KiB first-level, 2 MiB second-level cache), blocks of k on an EPYC with
# 1 MiB, November 2026; rows, columns and k are counts.
K_BLOCK = 512  # maximum: a packed panel of B is then 128 kB, and sums are seldom kept in scratch
NEAR_K_BLOCK = 128  # for few rows: a panel of B stays in the first-level cache; up to two blocks are summed at once
NEAR_BLOCKS = 7  # most blocks of k that are summed in this way for narrow results
ROWS = 384  # of packed A, if k is short
SUMMED_ROWS = 192  # of packed A, if a block of C (396 kB) also has to stay in the second-level cache
A_BYTES = 408 << 10  # of packed A, which stays in that cache while panels of B stream through
LONGEST_STEP = K_BLOCK * PANEL // LANES
SHARE = 48  # rows, in multiples of which A is packed: whole groups and whole kernels
COLUMNS = 512  # of C that are accumulated in scratch at a time
NARROW_BYTES = 4 * PANEL + 64
REUSE = 2  # minimum average number of reads of an element of A's range for the range to be widened once
SHORT_ROW = 128  # or maximum average number of the range's elements for each row, if few are between rows
BETWEEN_ROWS = 32
SPREAD = 2  # or maximum number of its elements for each element of A, if rows are packed one by one
SPAN = 1 << 18  # maximum elements of such a range
GROUP_SPAN = 1 << 16  # likewise for rows that are contiguous for each k: other ones are transposed
SHORT_PITCH = 256  # maximum bytes between widened rows of B that all panels share

PITCH_SUMS = 4 * COLUMNS + 64
_layout = ScratchLayout()
PACKED_B = _layout.area(max(4 * PANEL, SHORT_PITCH) * K_BLOCK)
OFFSETS = _layout.area(8 * LONGEST_STEP)  # of A along k
ROW_A = _layout.area(8 * ROWS)
ROW_C = _layout.area(8 * ROWS)
COLUMN = _layout.area(8 * PANEL)  # offsets of B's columns
PACKED_A = _layout.area(A_BYTES)
SUMS = _layout.area(SUMMED_ROWS * PITCH_SUMS)  # C
WIDE = _layout.area(4 * SPAN)  # the widened range
TILE = _layout.area(40)  # words of the tile of C
ORIGIN = TILE  # the source address of the range widened in scratch, or 0
FIRST_COLUMN = TILE + 8
LAST_K = TILE + 16
PITCH = TILE + 24  # bytes between rows of C in scratch; 0 if the micro kernels round and store to C itself
ORIGIN_B = TILE + 32  # the source address of the rows of B that are widened for all panels, or 0
HALF_SCRATCH = _layout.space()


@cache
def contract_half(
    element_type: str, result_type: str, pairs: bool = False, beside: bool = False, right: str | None = None
) -> Codelet:
    """Makes the codelet of products of f16 or bf16; results have the same type, or f32.

    With `pairs` bf16 are multiplied in pairs, not widened: the processor `multiplies_bf16_pairs`. With `beside` the
    kernels widen and pack B themselves: the processor `widens_beside_products`. `right` is the element type of B,
    F16_IN_F32, if it is not A's.
    """
    contract_units = over_units(half_contraction(element_type, result_type, pairs, beside, right), merges_columns=True)

    def contract_half_kernel(parameters: int, lo: int, hi: int, scratch: int) -> None:
        contract_units(parameters, lo, hi, scratch)

    name = f"contract_{element_type}_{result_type}" + "_pairs" * pairs + "_beside" * beside + "_rounded" * bool(right)
    libraries = (library(result_type, pairs), *([library(result_type, right=right or element_type)] if beside else []))
    return Codelet(contract_half_kernel, name, libraries, in_vectors=True)


@cache
def half_contraction(
    element_type: str, result_type: str, pairs: bool = False, beside: bool = False, right: str | None = None
) -> Inner:
    """Makes the contraction of a range of rows, columns and k, tile by tile of C, as `blocked` does."""
    rounds = result_type != "f32"
    widen_run = copied_run(element_type, "f32")
    right = right or element_type
    (pack_columns, panel), pack_rows = _packed_columns(right, pairs, beside), _pack_rows(element_type, pairs)
    multiply = _multiply(result_type, pairs, beside, right)
    steps_and_packing = (k_step, steps, pack_columns, pack_rows, panel, nothing_ahead)
    contract_tile = blocked(Parts(PANEL, 2 if rounds else 4, False, *steps_and_packing, multiply))

    @inner
    def begin_tile(at: Operands, tile: Block) -> None:
        """Writes the words of a tile."""
        scratch, pitch = at.scratch, NARROW_BYTES if tile.columns <= PANEL else PITCH_SUMS
        if one_step(at.parameters, tile.k_count):
            store_i64(scratch + PITCH, 0)
            return
        store_i64(scratch + PITCH, pitch)
        store_i64(scratch + FIRST_COLUMN, tile.column)
        store_i64(scratch + LAST_K, tile.k + tile.k_count)
        fill_table(scratch + ROW_C, tile.rows, pitch)

    @inner
    def contract(at: Operands, block: Block) -> None:
        row, rows, column, columns, k, k_count = block
        row_end, column_end = row + rows, column + columns
        most_rows = SUMMED_ROWS if rounds and not one_step(at.parameters, k_count) else ROWS
        pitch_a = 4 * k_step(at, block) + 64  # of packed rows
        most_rows = min(most_rows, A_BYTES // pitch_a // SHARE * SHARE)
        lowest, highest = reach(word(at.parameters, Field.OFFSET_A), k, k + k_count)
        store_i64(at.scratch + ORIGIN_B, 0)
        widened, widened_end = 0, 0
        for m in range(row, row_end, most_rows):
            count = min(most_rows, row_end - m)
            row_lowest, row_highest = reach(word(at.parameters, Field.ROW_A), m, m + count)
            start, end = at.a + row_lowest + lowest, at.a + row_highest + highest + 2
            in_place = not pairs and is_read_often(at.parameters, m, count, k_count, (end - start) // 2)
            if in_place and (start < widened or end > widened_end):
                widen_run(start, at.scratch + WIDE, (end - start) // 2)
                widened, widened_end = start, end
            store_i64(at.scratch + ORIGIN, widened if in_place else 0)
            for n in range(column, column_end, COLUMNS):
                tile = Block(m, count, n, min(COLUMNS, column_end - n), k, k_count)
                if rounds:
                    begin_tile(at, tile)
                contract_tile(at, tile)

    return contract


@inner
def reach(table: int, begin: int, end: int) -> tuple[int, int]:
    """The minimum and maximum of a table's entries begin <= i < end; zeros if there are none."""
    if end <= begin:
        return 0, 0
    return least_entry(table + 8 * begin, end - begin), greatest_entry(table + 8 * begin, end - begin)


@inner
def is_read_often(parameters: int, row: int, rows: int, k: int, elements: int) -> bool:
    """Whether to widen the whole range of memory that contains these rows of A, instead of packing the rows."""
    if begins_group(parameters, row):
        return elements <= min(rows * k, GROUP_SPAN)
    longest = max(k // REUSE, min(k + BETWEEN_ROWS, SHORT_ROW))
    if word(parameters, Field.RUN_A) < LEAST_RUN:
        longest = max(longest, SPREAD * k)
    return elements <= min(rows * longest, SPAN)


@inner
def longest_step(parameters: int, k_count: int) -> int:
    """The most k that are summed in registers at a time; equal for all units."""
    # Narrow units are computed as one block, whose panels of B are packed in the space of whole ones.
    columns = min(max(word(parameters, Field.COLUMNS_PER_UNIT), PANEL), word(parameters, Field.COLUMNS))
    padded = max(packed_pitch(columns) // 4, LANES)
    if padded < PANEL:  # rows of A span much memory, as in gradients by kernels
        near, far = k_count <= NEAR_BLOCKS * NEAR_K_BLOCK, K_BLOCK // 2
    else:
        near, far = word(parameters, Field.ROWS) < PACK_ROWS and k_count > 2 * NEAR_K_BLOCK, K_BLOCK
    most = NEAR_K_BLOCK if near else far
    # Whole vectors, or `even_cut` would exceed the limit, and packed B its scratch.
    return max(most, most * PANEL // padded // LANES * LANES)


@inner
def k_step(at: Operands, block: Block) -> int:
    """The number of k that are summed in registers at a time."""
    return even_cut(max(block.k_count, 1), longest_step(at.parameters, block.k_count), LANES)


@inner
def one_step(parameters: int, k_count: int) -> bool:
    """Whether all of k is summed in registers in one step."""
    return 0 < k_count <= longest_step(parameters, k_count)


@inner
def steps(at: Operands, block: Block) -> tuple[int, int, int]:
    """Takes all rows of a tile, and one panel at a time."""
    return block.rows, PANEL, 0


@inner
def overlaps(parameters: int, width: int, growth: int) -> bool:
    """Whether rows of B overlap, or are as close as packed rows: they are then widened, or joined, in one run.

    `growth`: the distance of packed rows, divided by that of rows of B.
    """
    close = 0 <= growth * word(parameters, Field.PITCH_B) <= packed_pitch(width)
    return word(parameters, Field.LAYOUT_B) == Layout.ROWS and close and (MASKED or width % LANES == 0)


@inner
def has_short_rows(parameters: int, k_count: int, growth: int) -> bool:
    """Whether rows of B are so close that they are widened in one run, which all panels share."""
    columns, pitch = word(parameters, Field.COLUMNS), growth * word(parameters, Field.PITCH_B)
    short = word(parameters, Field.LAYOUT_B) == Layout.ROWS and 0 < pitch <= SHORT_PITCH and columns % PANEL != 0
    return short and (k_count - 1) * pitch + 4 * columns <= SHORT_PITCH * K_BLOCK and MASKED


@inner
def is_packed_beside(parameters: int, columns: int, k_count: int, growth: int) -> bool:
    """Whether the kernels pack B: they do so with whole panels of contiguous rows that are evenly spaced."""
    whole = word(parameters, Field.LAYOUT_B) == Layout.ROWS and columns == PANEL
    return whole and not has_short_rows(parameters, k_count, growth)


def _packed_columns(right: str, pairs: bool, beside: bool) -> tuple[Inner, Inner]:
    """Makes `pack_columns` and `panel` for B of this element type."""
    size, growth = BYTES[right], 4 if pairs else 4 // BYTES[right]
    pack_panel, widen_run = packing(right).panel, copied_run(right, "f32")
    pack_joined = packing(right, pairs=True).panel if pairs else pack_panel

    @inner
    def is_one_run(at: Operands, block: Block) -> bool:
        return overlaps(at.parameters, block.columns, growth) and not (pairs and block.k_count % 2 != 0)

    @inner
    def pack_columns(at: Operands, block: Block, plan: int) -> None:
        """Packs a panel of B, unless the kernels do."""
        _, rows, column, columns, k, k_count = block
        target, offsets = at.scratch + PACKED_B, at.scratch + COLUMN
        if not pairs and has_short_rows(at.parameters, k_count, growth):
            source = at.b + load_i64(word(at.parameters, Field.OFFSET_B) + 8 * k)
            if load_i64(at.scratch + ORIGIN_B) != source:
                pitch = word(at.parameters, Field.PITCH_B)
                widen_run(source, target, (k_count - 1) * pitch // size + word(at.parameters, Field.COLUMNS))
                store_i64(at.scratch + ORIGIN_B, source)
            return
        store_i64(at.scratch + ORIGIN_B, 0)
        if beside and is_packed_beside(at.parameters, columns, k_count, growth):
            return
        if is_one_run(at, block):
            pitch = word(at.parameters, Field.PITCH_B)
            source = at.b + size * column + load_i64(word(at.parameters, Field.OFFSET_B) + 8 * k)
            if pairs:
                join_runs(source, source + pitch, target, (k_count - 2) * pitch // size + columns)
            else:
                widen_run(source, target, (k_count - 1) * pitch // size + columns)
        elif pairs and not has_pair_panels(at, k, k_count):
            pack_panel(at, column, columns, k, k_count, target, offsets)
            pair_rows(target, k_count, packed_pitch(columns))
        else:
            pack_joined(at, column, columns, k, k_count, target, offsets)

    @inner
    def panel(at: Operands, block: Block, column: int, plan: int) -> tuple[int, int]:
        """The panel's address, and the bytes between its rows."""
        if beside and is_packed_beside(at.parameters, block.columns, block.k_count, growth):
            offset = load_i64(word(at.parameters, Field.OFFSET_B) + 8 * block.k)
            return at.b + size * block.column + offset, word(at.parameters, Field.PITCH_B)
        if not pairs and has_short_rows(at.parameters, block.k_count, growth):
            return at.scratch + PACKED_B + 4 * block.column, growth * word(at.parameters, Field.PITCH_B)
        if is_one_run(at, block):
            return at.scratch + PACKED_B, growth * word(at.parameters, Field.PITCH_B)
        return at.scratch + PACKED_B, packed_pitch(block.columns)

    return pack_columns, panel


def _pack_rows(element_type: str, pairs: bool) -> Inner:
    pack_groups, pack_runs = packing(element_type).groups, packing(element_type).runs

    @inner
    def pack_rows(at: Operands, block: Block, number: int, again: bool, plan: int) -> tuple[int, int, int]:
        """Rows of A in float32 or pairs, packed or in the widened range, with tables of their row and k offsets."""
        rows, k_count = block.rows, block.k_count
        row_a, offset_a = offsets_of_a(at, block)
        origin, to_rows, to_offsets = load_i64(at.scratch + ORIGIN), at.scratch + ROW_A, at.scratch + OFFSETS
        packed, pitch = at.scratch + PACKED_A, packed_pitch(k_count) + 64
        if pairs and is_read_in_place(at.parameters):
            if not again:
                for i in range(k_count // 2):
                    store_i64(to_offsets + 8 * i, load_i64(offset_a + 16 * i))
            return at.a, row_a, to_offsets
        if not pairs and origin != 0:
            packed = at.scratch + WIDE + 2 * (at.a - origin)
            if not again:
                double_table(row_a, to_rows, rows)
                double_table(offset_a, to_offsets, k_count)
        elif not again and pairs and begins_group(at.parameters, block.row):
            pack_pair_groups(at.a, row_a, offset_a, rows, k_count, packed, to_rows, to_offsets)
        elif not again:
            if begins_group(at.parameters, block.row):
                pack_groups(at.a, row_a, offset_a, rows, k_count, packed, pitch)
            else:
                run = word(at.parameters, Field.RUN_A)
                pack_runs(at.a, row_a, offset_a, run, block.k % run, rows, k_count, packed, pitch)
            if pairs:
                narrow_rows(packed, pitch, rows, k_count)
            fill_table(to_rows, rows, pitch)
            fill_table(to_offsets, (k_count + 1) // 2 if pairs else k_count, 4)
        return packed, to_rows, to_offsets

    return pack_rows


def _multiply(result_type: str, pairs: bool, beside: bool, right: str) -> Inner:
    """Makes the multiplication by a panel, packed or to be packed; 16-bit results are rounded once."""
    rounds, size, growth = result_type != "f32", BYTES[result_type], 4 // BYTES[right]
    if not rounds and not pairs and not beside:
        return contract_f32.multiply
    multiply_packed, narrow_run = panels(result_type, pairs), copied_run("f32", result_type)
    multiply_and_pack = panels(result_type, right=right)

    @inner
    def multiply(
        at: Operands,
        block: Block,
        accumulate: int,
        packed_rows: tuple[int, int, int],
        packed_panel: tuple[int, int],
        prefetched: tuple[int, int, int, int],
    ) -> None:
        """Multiplies in the micro kernels; C is rounded when they store it, or after the last step along k."""
        _, rows, column, columns, k, k_count = block
        c, row_c = at.c + size * column, word(at.parameters, Field.ROW_C) + 8 * block.row
        to, to_rows, how, pitch = c, row_c, accumulate, 0
        if rounds:
            pitch = load_i64(at.scratch + PITCH)
            if pitch == 0:
                how = AS_HALF
            else:
                to = at.scratch + SUMS + 4 * (column - load_i64(at.scratch + FIRST_COLUMN))
                to_rows = at.scratch + ROW_C
        operands = rows, columns, (k_count + 1) // 2 if pairs else k_count, packed_rows, packed_panel
        if beside and is_packed_beside(at.parameters, columns, k_count, growth):
            target = at.scratch + PACKED_B, 0, packed_pitch(columns), 0
            multiply_and_pack(*operands, target, NOTHING_AHEAD, to, to_rows, how)
        else:
            multiply_packed(*operands, NOTHING_AHEAD, NOTHING_AHEAD, to, to_rows, how)
        if rounds and pitch != 0 and k + k_count == load_i64(at.scratch + LAST_K):
            for m in range(rows):
                narrow_run(to + m * pitch, c + load_i64(row_c + 8 * m), columns)

    return multiply
