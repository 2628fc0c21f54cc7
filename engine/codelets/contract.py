"""The codelet that computes every float32 dot and convolution, as an indexed contraction."""

from __future__ import annotations

from engine.codelets.build import codelet, inner
from engine.codelets.contract_fields import Field, Layout
from engine.codelets.memory import load_i64, store_f32
from engine.codelets.micro_kernel import panel_columns
from engine.codelets.pack import (
    LANES,
    fill_progression,
    pack_elements,
    pack_grouped_rows,
    pack_rows,
    pack_transposed,
)
from engine.codelets.panel import multiply_panel
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.processor import masks_are_cheap

MASKED = masks_are_cheap()
PANEL = panel_columns()
# Tuned on two cores of a Xeon with AVX-512 (48 KiB first-level, 2 MiB second-level cache), November 2026,
# by medians of alternating runs of cubes up to 1536^3 and products of training; rows, columns and k are counts.
K_BLOCK = 512  # maximum: a packed panel of B is 128 kB then, and C is read and written seldom
APART_K_BLOCK = 256  # maximum where each k of A is a cache line of its own, or is packed: few of these fit
NEAR_K_BLOCK = 128  # with so few rows that a packed panel of B should be in the first-level cache from the start
FEW_ROWS = 256  # of all units together
B_FLOATS = 1 << 17  # of packed panels of B, which stay in the second-level cache while rows of A stream through
PACKED_B_FLOATS = 1 << 18  # the same where A is packed, once for each of these blocks
GROUP_ROWS = 24  # multiplied by all of these panels before the next rows are: whole kernels
PACKED_GROUP_ROWS = 48  # the same for packed A: whole groups as well
MANY_ROWS = 384  # minimum for streaming rows past panels; fewer stay in the cache themselves, and panels stream
CACHED = 1024  # rows and columns together, whose blocks of A and B (2 MB) stay in that cache anyway
PACK_ROWS = 48  # packing B does not pay for fewer rows
LONG_K = 128  # minimum k of a block that counts as long
DENSE_PITCH = 256  # bytes between rows of B up to which a copy is no faster to read, twice that in long blocks

# Scratch, after the executor's words: packed B; offsets of packed A along k; its row offsets; B's column offsets;
# packed A.
PACKED_K = 4 * PACKED_B_FLOATS
PACKED_ROW = PACKED_K + 8 * K_BLOCK
COLUMN = PACKED_ROW + 8 * MANY_ROWS
PACKED_A = COLUMN + 8 * PANEL
PACKED_PITCH_A = 4 * K_BLOCK + 64  # not a power of two, or the rows would share cache sets
SCRATCH_BYTES = RESERVED_SCRATCH + PACKED_A + MANY_ROWS * PACKED_PITCH_A


def contract_scratch_bytes() -> int:
    """The bytes of scratch that contract_f32 needs, for any parameters."""
    return SCRATCH_BYTES


@inner
def field(parameters: int, index: int) -> int:
    """One field (int64) of a parameter block."""
    return load_i64(parameters + 8 * index)


@inner
def batch_offset(table: int, batch: int) -> int:
    """A batch's byte offset in a table; 0 without a table."""
    return load_i64(table + 8 * batch) if table != 0 else 0


@inner
def operands(parameters: int, split: int, batch: int) -> tuple[int, int, int]:
    """The addresses of A, B and C of a batch and a split of k."""
    a = field(parameters, Field.A) + batch_offset(field(parameters, Field.BATCH_A), batch)
    b = field(parameters, Field.B) + batch_offset(field(parameters, Field.BATCH_B), batch)
    c = field(parameters, Field.C) + batch_offset(field(parameters, Field.BATCH_C), batch)
    return a, b, c + split * field(parameters, Field.PARTIAL_PITCH)


@inner
def blocks_of(parameters: int, unit: int) -> tuple[int, int, int, int]:
    """A unit's block of rows, block of columns, split of k and batch."""
    row_blocks, column_blocks = field(parameters, Field.ROW_BLOCKS), field(parameters, Field.COLUMN_BLOCKS)
    rest = unit // (row_blocks * column_blocks)
    k_splits = field(parameters, Field.K_SPLITS)
    return unit % row_blocks, unit // row_blocks % column_blocks, rest % k_splits, rest // k_splits


@inner
def extents(parameters: int, row_block: int, run: int, column_block: int, split: int) -> tuple[int, ...]:
    """First row, number of rows, first column, number of columns, first k and number of k of `run` row blocks."""
    rows_per_unit = field(parameters, Field.ROWS_PER_UNIT)
    columns_per_unit = field(parameters, Field.COLUMNS_PER_UNIT)
    k_per_unit = field(parameters, Field.K_PER_UNIT)
    row, column, k = row_block * rows_per_unit, column_block * columns_per_unit, split * k_per_unit
    rows = min(run * rows_per_unit, field(parameters, Field.ROWS) - row)
    columns = min(columns_per_unit, field(parameters, Field.COLUMNS) - column)
    return row, rows, column, columns, k, min(k_per_unit, field(parameters, Field.K) - k)


@codelet
def contract_f32(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Units lo <= unit < hi of the contraction that `contract_record` describes, in float32."""
    unit = lo
    while unit < hi:
        row_block, column_block, split, batch = blocks_of(parameters, unit)
        # Neighbouring row blocks share B, so they are computed as one.
        run = min(hi - unit, field(parameters, Field.ROW_BLOCKS) - row_block)
        contract_block(parameters, row_block, run, column_block, split, batch, scratch + RESERVED_SCRATCH)
        unit += run


@inner
def contract_block(
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
        padded = (columns + LANES - 1) // LANES * LANES
        most = longest_block(parameters, k_begin, k_count)
        k_step = even_step(k_count, max(most, most * PANEL // padded))
        for k in range(0, k_count, k_step):
            k_now = min(k_step, k_count - k)
            first = accumulate if k == 0 else 1
            contract_k_block(parameters, a, b, c, row, rows, columns, k_begin + k, k_now, first, scratch)


@inner
def longest_block(parameters: int, k: int, k_count: int) -> int:
    """The largest k of a block; the same for all workers, as it determines the order of summation."""
    first = field(parameters, Field.OFFSET_A) + 8 * k
    if k_count < 2 or load_i64(first + 8) - load_i64(first) == 4:
        return K_BLOCK
    few_rows = field(parameters, Field.PACK_A) != 0 and field(parameters, Field.ROWS) <= FEW_ROWS
    return NEAR_K_BLOCK if few_rows else APART_K_BLOCK


@inner
def even_cut(count: int, limit: int, grain: int) -> int:
    """Block size that splits `count` into about equal parts: a multiple of `grain`, at most `limit` (also one)."""
    parts = (count + limit - 1) // limit
    return ((count + parts - 1) // parts + grain - 1) // grain * grain


@inner
def even_step(count: int, limit: int) -> int:
    """The same for k, in multiples of LANES."""
    return even_cut(count, limit, LANES)


@inner
def fill_zero(c: int, row_c: int, rows: int, columns: int) -> None:
    """C[row_c[m] + 4n] = 0."""
    for i in range(rows):
        c_row = c + load_i64(row_c + 8 * i)
        for n in range(columns):
            store_f32(c_row + 4 * n, 0.0)


@inner
def contract_k_block(
    parameters: int,
    a: int,
    b: int,
    c: int,
    row: int,
    rows: int,
    columns: int,
    k: int,
    k_count: int,
    accumulate: int,
    scratch: int,
) -> None:
    """Multiplies rows row .. row + rows of A by rows k .. k + k_count of B, whose first column is at `b`."""
    group = field(parameters, Field.PACK_A)
    packs_a = group != 0 and row % max(group, 1) == 0 and columns > PANEL and k_count >= LANES
    by_rows = rows >= MANY_ROWS and columns > PANEL and (packs_a or rows + columns > CACHED)
    row_step = rows
    if by_rows:
        row_step = PACKED_GROUP_ROWS if packs_a else GROUP_ROWS
    column_step = even_panels(columns, (PACKED_B_FLOATS if packs_a else B_FLOATS) // k_count) if by_rows else PANEL
    packed_b = packs_b(parameters, columns, k_count, rows)
    if packs_a:
        fill_progression(scratch + PACKED_ROW, min(rows, MANY_ROWS), PACKED_PITCH_A)
        fill_progression(scratch + PACKED_K, k_count, 4)
    for n in range(0, columns, column_step):
        end = min(columns, n + column_step)
        if packed_b:
            for panel in range(n, end, PANEL):
                target = scratch + 4 * (panel - n) * k_count
                pack_panel(parameters, b, panel, min(PANEL, columns - panel), k, k_count, target, scratch + COLUMN)
        for i in range(0, rows, row_step):
            count = min(row_step, rows - i)
            row_a = field(parameters, Field.ROW_A) + 8 * (row + i)
            row_c = field(parameters, Field.ROW_C) + 8 * (row + i)
            offset_a = field(parameters, Field.OFFSET_A) + 8 * k
            base = a
            if packs_a:
                base = scratch + PACKED_A
                if by_rows or n == 0:
                    pack_grouped_rows(a, row_a, offset_a, count, k_count, base, PACKED_PITCH_A)
                row_a, offset_a = scratch + PACKED_ROW, scratch + PACKED_K
            for panel in range(n, end, PANEL):
                width = min(PANEL, columns - panel)
                if packed_b:
                    panel_b, pitch = scratch + 4 * (panel - n) * k_count, packed_pitch(width)
                else:
                    first = load_i64(field(parameters, Field.OFFSET_B) + 8 * k)
                    panel_b, pitch = b + 4 * panel + first, field(parameters, Field.PITCH_B)
                target = c + 4 * panel
                multiply_panel(count, width, k_count, base, row_a, offset_a, panel_b, pitch, target, row_c, accumulate)


@inner
def even_panels(columns: int, limit: int) -> int:
    """The same for columns, in multiples of PANEL."""
    return even_cut(columns, max(1, limit // PANEL) * PANEL, PANEL)


@inner
def packed_pitch(width: int) -> int:
    """Bytes between the rows of a packed panel."""
    return (width + LANES - 1) // LANES * LANES * 4


@inner
def packs_b(parameters: int, columns: int, k_count: int, rows: int) -> bool:
    """Whether panels of B are packed: not where B itself reads as fast."""
    pitch = field(parameters, Field.PITCH_B)
    dense = pitch % 64 == 0 and 0 <= pitch <= (2 * DENSE_PITCH if k_count > LONG_K else DENSE_PITCH)
    readable = MASKED or columns % LANES == 0
    return field(parameters, Field.LAYOUT_B) != Layout.ROWS or not (dense or rows < PACK_ROWS) or not readable


@inner
def pack_panel(
    parameters: int, b: int, column: int, width: int, k: int, k_count: int, target: int, column_offsets: int
) -> None:
    """Packs rows k .. k + k_count of `width` columns of B; `column_offsets`: the address of space for a table."""
    layout = field(parameters, Field.LAYOUT_B)
    stride = field(parameters, Field.STRIDE_B)
    offset_b = field(parameters, Field.OFFSET_B) + 8 * k
    source = b + column * stride
    pitch = packed_pitch(width)
    if layout == Layout.ROWS or layout == Layout.SCATTERED_ROWS:
        pack_rows(source, offset_b, k_count, width, target, pitch)
    elif layout == Layout.ELEMENTS:
        pack_elements(source, offset_b, stride, k_count, width, target, pitch)
    else:
        run = k_count if layout == Layout.TRANSPOSED else field(parameters, Field.PITCH_B)
        fill_progression(column_offsets, width, stride)
        done = 0
        while done < k_count:
            count = k_count - done
            if layout == Layout.RUNS:
                count = min(count, run - (k + done) % run)
            first = source + load_i64(offset_b + 8 * done)
            pack_transposed(first, column_offsets, width, count, target + done * pitch, pitch)
            done += count
