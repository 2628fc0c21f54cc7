"""The codelets of dots and convolutions of 16-bit floats: the float32 micro kernels, rounded once at the end.

A and B are widened while they are packed, and C is accumulated in scratch. Where convolutions read elements of A many
times, the whole memory range they are in is widened once and read with its own strides.
"""

from __future__ import annotations

from functools import cache

from engine.codelets.build import Codelet, inner
from engine.codelets.contract import MASKED, blocks_of, even_step, field, fill_zero, operands
from engine.codelets.contract_fields import Field, Layout
from engine.codelets.half_vectors import BF16, F16
from engine.codelets.memory import load_i64, store_i64
from engine.codelets.micro_kernel import AS_HALF, panel_columns
from engine.codelets.pack import LANES, fill_progression
from engine.codelets.pack_half import (
    narrow_run,
    pack_grouped_half,
    pack_half_columns,
    pack_half_rows,
    pack_half_runs,
    pack_transposed_half,
    widen_run,
)
from engine.codelets.panel import multiply_panel, multiply_panel_bf16, multiply_panel_f16
from engine.machine_code.abi import RESERVED_SCRATCH

PANEL = panel_columns()
F32 = 2
KINDS = {"f16": F16, "bf16": BF16, "f32": F32}
# Tuned on two cores of a Xeon with AVX-512 (48 KiB first-level, 2 MiB second-level cache), November 2026; rows,
# columns and k are counts.
K_BLOCK = 256  # maximum: part of a packed panel of B (64 kB) stays in the first-level cache
NEAR_K_BLOCK = 128  # a panel of B that stays there whole; sums are kept in scratch more often
NEAR_BLOCKS = 7  # the most such blocks for which that pays
ROWS = 384  # of packed A: 416 kB of the second-level cache
SUMMED_ROWS = 192  # where a block of C (396 kB) has to stay in the second-level cache, too
A_BYTES = ROWS * (4 * K_BLOCK + 64)  # of packed A, which stays there while panels of B stream through
LONGEST_STEP = K_BLOCK * PANEL // LANES
SHARE = 48  # rows: whole groups and whole kernels
COLUMNS = 512  # of C that are accumulated in scratch at a time
NARROW_BYTES = 4 * PANEL + 64
REUSE = 2  # minimum average number of reads of an element of A's range for the range to be widened once
SPAN = 1 << 18  # maximum elements of such a range

# Scratch, after the executor's words: packed B; offsets of A along k; rows of A and C; columns of B; packed A; C; the
# widened range.
OFFSETS = 4 * K_BLOCK * PANEL
ROW_A = OFFSETS + 8 * LONGEST_STEP
ROW_C = ROW_A + 8 * ROWS
COLUMN = ROW_C + 8 * ROWS
PACKED_A = COLUMN + 8 * PANEL
SUMS = PACKED_A + A_BYTES
PITCH_SUMS = 4 * COLUMNS + 64
WIDE = SUMS + SUMMED_ROWS * PITCH_SUMS
SCRATCH_BYTES = RESERVED_SCRATCH + WIDE + 4 * SPAN + 64


def contract_half_scratch_bytes() -> int:
    """The bytes of scratch that these codelets need, for any parameters."""
    return SCRATCH_BYTES


@cache
def contract_half(element_type: str, result_type: str) -> Codelet:
    """The codelet of products of f16 or bf16; the result is of the same type, or f32."""
    kind, result = KINDS[element_type], KINDS[result_type]

    def contract_half_kernel(parameters: int, lo: int, hi: int, scratch: int) -> None:
        row_blocks = field(parameters, Field.ROW_BLOCKS)
        column_blocks = field(parameters, Field.COLUMN_BLOCKS)
        unit = lo
        while unit < hi:
            row_block, column_block, split, batch = blocks_of(parameters, unit)
            # Neighbouring row blocks share B and neighbouring column blocks A, so they are computed as one.
            run_rows = min(hi - unit, row_blocks - row_block)
            run_columns = min(hi - unit, column_blocks - column_block) if row_blocks == 1 else 1
            row = row_block * field(parameters, Field.ROWS_PER_UNIT)
            row_end = min(row + run_rows * field(parameters, Field.ROWS_PER_UNIT), field(parameters, Field.ROWS))
            column = column_block * field(parameters, Field.COLUMNS_PER_UNIT)
            column_end = column + run_columns * field(parameters, Field.COLUMNS_PER_UNIT)
            column_end = min(column_end, field(parameters, Field.COLUMNS))
            block = scratch + RESERVED_SCRATCH
            contract_rows(parameters, row, row_end, column, column_end, split, batch, kind, result, block)
            unit += run_rows * run_columns

    return Codelet(contract_half_kernel, f"contract_{element_type}_{result_type}")


@inner
def contract_rows(
    parameters: int,
    row: int,
    row_end: int,
    column: int,
    column_end: int,
    split: int,
    batch: int,
    kind: int,
    result: int,
    scratch: int,
) -> None:
    """Computes rows row .. row_end, columns column .. column_end, of one split of k of one batch."""
    a, b, c = operands(parameters, split, batch)
    k = split * field(parameters, Field.K_PER_UNIT)
    k_end = min(k + field(parameters, Field.K_PER_UNIT), field(parameters, Field.K))
    contract_part(parameters, a, b, c, row, row_end, column, column_end, k, k_end, kind, result, scratch)


@inner
def contract_part(
    parameters: int,
    a: int,
    b: int,
    c: int,
    row: int,
    row_end: int,
    column: int,
    column_end: int,
    k: int,
    k_end: int,
    kind: int,
    result: int,
    scratch: int,
) -> None:
    """The same from the operands' addresses, for a range of k, block by block."""
    most_rows = ROWS if one_step(parameters, k, k_end) or result == F32 else SUMMED_ROWS
    most_rows = min(most_rows, A_BYTES // pitch_of_a(parameters, k, k_end) // SHARE * SHARE)
    lowest, highest = reach(field(parameters, Field.OFFSET_A), k, k_end)
    widened, widened_end = 0, 0
    for m in range(row, row_end, most_rows):
        rows = min(most_rows, row_end - m)
        row_lowest, row_highest = reach(field(parameters, Field.ROW_A), m, m + rows)
        start, end = a + row_lowest + lowest, a + row_highest + highest + 2
        as_it_lies = is_read_often(parameters, m, rows, k_end - k, (end - start) // 2)
        if as_it_lies and (start < widened or end > widened_end):
            widen_run(kind, start, scratch + WIDE, (end - start) // 2)
            widened, widened_end = start, end
        for n in range(column, column_end, COLUMNS):
            columns = min(COLUMNS, column_end - n)
            origin = widened if as_it_lies else 0
            contract_tile(parameters, a, origin, b, c, m, rows, n, columns, k, k_end, kind, result, scratch)


@inner
def reach(table: int, begin: int, end: int) -> tuple[int, int]:
    """The minimum and maximum of entries begin .. end; 0 if there are none."""
    lowest = highest = load_i64(table + 8 * begin) if end > begin else 0
    for i in range(begin + 1, end):
        entry = load_i64(table + 8 * i)
        lowest, highest = min(lowest, entry), max(highest, entry)
    return lowest, highest


@inner
def packs_groups(parameters: int, row: int) -> bool:
    """Whether this row begins a group of contiguous rows."""
    group = field(parameters, Field.PACK_A)
    return group != 0 and row % max(group, 1) == 0


@inner
def is_read_often(parameters: int, row: int, rows: int, k: int, elements: int) -> bool:
    """Whether to widen the whole range of memory that contains these rows of A, instead of packing the rows."""
    return not packs_groups(parameters, row) and elements <= SPAN and REUSE * elements <= rows * k


@inner
def contract_tile(
    parameters: int,
    a: int,
    widened: int,
    b: int,
    c: int,
    row: int,
    rows: int,
    column: int,
    columns: int,
    k: int,
    k_end: int,
    kind: int,
    result: int,
    scratch: int,
) -> None:
    """Computes at most ROWS x COLUMNS of C; `widened`: the source address of the range widened in scratch, or 0."""
    row_c, accumulate = field(parameters, Field.ROW_C) + 8 * row, field(parameters, Field.ACCUMULATE)
    at_once = result != F32 and one_step(parameters, k, k_end)
    sums, row_sums, pitch_sums = scratch + SUMS, scratch + ROW_C, NARROW_BYTES if columns <= PANEL else PITCH_SUMS
    if result == F32:
        sums, row_sums = c + 4 * column, row_c
    elif not at_once:
        fill_progression(row_sums, rows, pitch_sums)
        if accumulate != 0:
            widen_rows(kind, c + 2 * column, row_c, sums, pitch_sums, rows, columns)
    if k_end <= k and accumulate == 0:
        fill_zero(sums, row_sums, rows, columns)
    k_step, pitch_a = step_along_k(parameters, k, k_end), pitch_of_a(parameters, k, k_end)
    for k_now in range(k, k_end, k_step):
        k_count = min(k_step, k_end - k_now)
        adds = accumulate if k_now == k else 1
        base = a_block(parameters, a, widened, row, rows, k_now, k_count, pitch_a, kind, scratch)
        for n in range(0, columns, PANEL):
            width = min(PANEL, columns - n)
            pitch = b_block(parameters, b, column + n, width, k_now, k_count, kind, scratch)
            row_a, offset_a = scratch + ROW_A, scratch + OFFSETS
            target, rounded = sums + 4 * n, c + 2 * (column + n)
            to, to_rows, how = (rounded, row_c, AS_HALF) if at_once else (target, row_sums, adds)
            multiply(kind, result, rows, width, k_count, base, row_a, offset_a, scratch, pitch, to, to_rows, how)
            if result != F32 and not at_once and k_now + k_count == k_end:
                round_panel(kind, target, pitch_sums, rounded, row_c, rows, width)
    if k_end <= k and result != F32:
        round_panel(kind, sums, pitch_sums, c + 2 * column, row_c, rows, columns)


@inner
def longest_step(parameters: int, k_count: int) -> int:
    """The largest k that is summed in registers: the same for all units."""
    columns = min(field(parameters, Field.COLUMNS_PER_UNIT), field(parameters, Field.COLUMNS))
    padded = max((columns + LANES - 1) // LANES * LANES, LANES)
    most = NEAR_K_BLOCK if k_count <= NEAR_BLOCKS * NEAR_K_BLOCK else K_BLOCK
    return max(most, most * PANEL // padded)


@inner
def step_along_k(parameters: int, k: int, k_end: int) -> int:
    """The k that is summed in registers at a time."""
    return even_step(max(k_end - k, 1), longest_step(parameters, k_end - k))


@inner
def pitch_of_a(parameters: int, k: int, k_end: int) -> int:
    """Bytes between packed rows of A: not a power of two, or the rows would share cache sets."""
    return 4 * step_along_k(parameters, k, k_end) + 64


@inner
def one_step(parameters: int, k: int, k_end: int) -> bool:
    """Whether all of k is summed in registers in one step."""
    return field(parameters, Field.ACCUMULATE) == 0 and 0 < k_end - k <= longest_step(parameters, k_end - k)


@inner
def multiply(
    kind: int,
    result: int,
    rows: int,
    columns: int,
    k: int,
    a: int,
    row_a: int,
    offset_a: int,
    b: int,
    pitch_b: int,
    c: int,
    row_c: int,
    accumulate: int,
) -> None:
    """As `multiply_panel`, also with a 16-bit C; each codelet has one set of micro kernels for all it computes."""
    if result == F32:
        multiply_panel(rows, columns, k, a, row_a, offset_a, b, pitch_b, c, row_c, accumulate)
    elif kind == F16:
        multiply_panel_f16(rows, columns, k, a, row_a, offset_a, b, pitch_b, c, row_c, accumulate)
    else:
        multiply_panel_bf16(rows, columns, k, a, row_a, offset_a, b, pitch_b, c, row_c, accumulate)


@inner
def widen_rows(kind: int, c: int, row_c: int, sums: int, pitch: int, rows: int, columns: int) -> None:
    """sums[m * pitch + 4n] = C[row_c[m] + 2n]."""
    for m in range(rows):
        widen_run(kind, c + load_i64(row_c + 8 * m), sums + m * pitch, columns)


@inner
def round_panel(kind: int, sums: int, pitch: int, c: int, row_c: int, rows: int, columns: int) -> None:
    """C[row_c[m] + 2n] = sums[m * pitch + 4n], rounded."""
    for m in range(rows):
        narrow_run(kind, sums + m * pitch, c + load_i64(row_c + 8 * m), columns)


@inner
def a_block(
    parameters: int,
    a: int,
    widened: int,
    row: int,
    rows: int,
    k: int,
    k_count: int,
    pitch: int,
    kind: int,
    scratch: int,
) -> int:
    """The address of a block of A in float32, packed if need be. Fills the tables of its row and k offsets."""
    row_a = field(parameters, Field.ROW_A) + 8 * row
    offset_a = field(parameters, Field.OFFSET_A) + 8 * k
    if widened != 0:
        for m in range(rows):
            store_i64(scratch + ROW_A + 8 * m, 2 * load_i64(row_a + 8 * m))
        for i in range(k_count):
            store_i64(scratch + OFFSETS + 8 * i, 2 * load_i64(offset_a + 8 * i))
        return scratch + WIDE + 2 * (a - widened)
    packed = scratch + PACKED_A
    if packs_groups(parameters, row):
        pack_grouped_half(kind, a, row_a, offset_a, rows, k_count, packed, pitch)
    else:
        run = field(parameters, Field.RUN_A)
        pack_half_runs(kind, a, row_a, offset_a, run, k % run, rows, k_count, packed, pitch)
    fill_progression(scratch + ROW_A, rows, pitch)
    fill_progression(scratch + OFFSETS, k_count, 4)
    return packed


@inner
def b_block(parameters: int, b: int, column: int, width: int, k: int, k_count: int, kind: int, packed: int) -> int:
    """Packs a panel of B; returns the bytes between its rows. Overlapping rows are widened in place, not packed."""
    layout, between = field(parameters, Field.LAYOUT_B), field(parameters, Field.PITCH_B)
    stride = field(parameters, Field.STRIDE_B)
    offset_b = field(parameters, Field.OFFSET_B) + 8 * k
    source, columns = b + column * stride, packed + COLUMN
    pitch = (width + LANES - 1) // LANES * LANES * 4
    if layout == Layout.ROWS and 0 <= 2 * between <= pitch and (MASKED or width % LANES == 0):
        widen_run(kind, source + load_i64(offset_b), packed, (k_count - 1) * between // 2 + width)
        return 2 * between
    if layout == Layout.ROWS or layout == Layout.SCATTERED_ROWS:
        pack_half_rows(kind, source, offset_b, k_count, width, packed, pitch)
    elif layout == Layout.TRANSPOSED:
        fill_progression(columns, width, stride)
        pack_transposed_half(kind, source + load_i64(offset_b), columns, width, k_count, packed, pitch)
    elif layout == Layout.RUNS:
        fill_progression(columns, width, stride)
        done = 0
        while done < k_count:
            count = min(k_count - done, between - (k + done) % between)
            start = source + load_i64(offset_b + 8 * done)
            pack_transposed_half(kind, start, columns, width, count, packed + done * pitch, pitch)
            done += count
    else:
        pack_half_columns(kind, source, offset_b, stride, k_count, width, packed, pitch)
    return pitch
