"""The blocked contraction: loops over units, blocks of k, of columns and of rows, around the parts of one codelet.

Micro kernels multiply a block of rows of A by a panel of B, and sum over a block of k in registers. The codelet's
`Parts` say how operands are packed, how large blocks are, and how results are stored.

Prefetching of the operands of a batched product's next unit, before the current unit is computed.

An attention's heads are small and far apart in memory, so neither the processor nor packing would read them before they
are needed.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.codelets.language.build import Inner, inner
from engine.codelets.language.memory import load_i64, prefetch_to_second_level, store_i8
from engine.codelets.language.record import word
from engine.codelets.products.contract_fields import Field, Layout, NextUnit
from engine.machine_code.abi import RESERVED_SCRATCH

LINE = 64


@inner
def prefetch_unit(parameters: int, unit: int) -> None:
    """Prefetches, as NEXT_UNIT says, A and B for the row blocks of a batch from `unit` on, if there are any.

    Lines are along k, or along rows or columns if these are contiguous.
    """
    given = Field.read(parameters)
    batch, first = unit // given.row_blocks, unit % given.row_blocks * given.rows_per_unit
    if given.next_unit == 0 or batch >= given.batches:
        return
    rows, columns, k = given.rows - first, given.columns, given.k
    if given.next_unit & NextUnit.A:
        a, row_a = given.a + load_i64(given.batch_a + 8 * batch), given.row_a + 8 * first
        if given.run_a == k:
            _prefetch_spans(a + load_i64(given.offset_a), row_a, rows, 4 * k)
        else:
            _prefetch_spans(a + load_i64(row_a), given.offset_a, k, 4 * rows)
    if given.next_unit & NextUnit.B:
        b = given.b + load_i64(given.batch_b + 8 * batch)
        if given.layout_b == Layout.ROWS:
            _prefetch_spans(b, given.offset_b, k, 4 * columns)
        elif given.layout_b == Layout.TRANSPOSED:
            for n in range(columns):
                _prefetch_span(b + load_i64(given.offset_b) + n * given.stride_b, 4 * k)


@inner
def _prefetch_spans(base: int, offsets: int, count: int, size: int) -> None:
    for i in range(count):
        _prefetch_span(base + load_i64(offsets + 8 * i), size)


@inner
def _prefetch_span(start: int, size: int) -> None:
    for line in range(start // LINE * LINE, start + size, LINE):
        prefetch_to_second_level(line)


class Operands(NamedTuple):
    """Addresses of the parameters, of A, B and C of one batch, and of the codelet's scratch."""

    parameters: int
    a: int
    b: int
    c: int
    scratch: int


class Block(NamedTuple):
    """A block of the contraction: its first row, column and k, and how many of each it has."""

    row: int
    rows: int
    column: int
    columns: int
    k: int
    k_count: int


class Following(NamedTuple):
    """The first row or the first column, and the first k, of the next block to pack; what is not packed next is -1."""

    row: int
    column: int
    k: int


class Parts(NamedTuple):
    """The functions and numbers of a product's codelet that are compiled into its loops.

    `at` are Operands; `plan` is a number that only the codelet's own parts interpret.

    k_step(at, block): the most k that are summed in registers; equal for all workers, as it determines the order of
    summation.

    steps(at, block): the most rows and columns that are packed at a time, and the plan.

    pack_columns(at, block, plan): packs the block's columns.

    pack_rows(at, block, number, again, plan): packs the block's rows, whose first is row `number` of its unit; `again`:
    for another block of columns. Returns a base address, row offsets and k offsets.

    panel(at, block, column, plan): the address and pitch of a panel of B; columns were packed from `column` on.

    ahead(at, block, number, following, plan): what to prefetch of the block `following` while panel `number` of the
    packed panels is multiplied, as `multiply_panel` takes it.

    multiply(at, block, accumulate, packed_rows, packed_panel, prefetched): multiplies what pack_rows and panel
    returned, and stores the products.
    """

    width: int  # columns of a panel
    result_bytes: int  # size of an element of C
    rows_by_unit: bool  # whether rows of different units are packed separately
    k_step: Inner
    steps: Inner
    pack_columns: Inner
    pack_rows: Inner
    panel: Inner
    ahead: Inner
    multiply: Inner


@inner
def even_cut(count: int, limit: int, grain: int) -> int:
    """Block size that splits `count` about evenly: a multiple of `grain`, at most `limit` (itself a multiple)."""
    parts = (count + limit - 1) // limit
    return ((count + parts - 1) // parts + grain - 1) // grain * grain


@inner
def nothing_ahead(
    at: Operands, block: Block, number: int, following: Following, plan: int
) -> tuple[int, int, int, int]:
    """The `ahead` of codelets that do not prefetch."""
    return 0, 0, 0, 0


@inner
def following_block(block: Block, row: int, column: int, more: bool) -> Following:
    """The rows or columns to pack after those before `row` and `column`; `more`: whether further blocks of k follow."""
    if row < block.row + block.rows:
        return Following(row, -1, block.k)
    if column < block.column + block.columns:
        return Following(-1, column, block.k)
    return Following(-1, block.column if more else -1, block.k + block.k_count)


def blocked(parts: Parts) -> Inner:
    """Makes the contraction of a block, which is not partitioned among workers any further."""
    panel_width, result_bytes, rows_by_unit, k_step, steps, pack_columns, pack_rows, panel, ahead, multiply = parts

    @inner
    def contract_k_block(at: Operands, block: Block, accumulate: int, more: bool) -> None:
        row, rows, column, columns, k, k_count = block
        row_step, column_step, plan = steps(at, block)
        rows_per_unit = word(at.parameters, Field.ROWS_PER_UNIT)
        end = column + columns
        for n in range(column, end, column_step):
            n_end = min(end, n + column_step)
            pack_columns(at, Block(row, rows, n, n_end - n, k, k_count), plan)
            i = 0
            while i < rows:
                count = min(row_step, rows - i)
                if rows_by_unit:
                    count = min(count, rows_per_unit - i % rows_per_unit)
                packed_rows = pack_rows(at, Block(row + i, count, n, n_end - n, k, k_count), i, n > column, plan)
                following = following_block(block, row + i + count, n_end, more)
                for m in range(n, n_end, panel_width):
                    part = Block(row + i, count, m, min(panel_width, n_end - m), k, k_count)
                    prefetched = ahead(at, part, (m - n) // panel_width, following, plan)
                    multiply(at, part, accumulate, packed_rows, panel(at, part, n, plan), prefetched)
                i += count

    @inner
    def contract(at: Operands, block: Block) -> None:
        row, rows, column, columns, k, k_count = block
        if k_count > 0:
            step = k_step(at, block)
            for i in range(0, k_count, step):
                part = Block(row, rows, column, columns, k + i, min(step, k_count - i))
                contract_k_block(at, part, 0 if i == 0 else 1, i + step < k_count)
        else:
            for m in range(row, row + rows):
                start = at.c + load_i64(word(at.parameters, Field.ROW_C) + 8 * m)
                for i in range(column * result_bytes, (column + columns) * result_bytes):
                    store_i8(start + i, 0)

    return contract


@inner
def operands(parameters: int, split: int, batch: int, scratch: int) -> Operands:
    """Addresses of the operands of one batch and one split of k."""
    given = Field.read(parameters)
    a, b, c = given.a + batch_offset(given.batch_a, batch), given.b + batch_offset(given.batch_b, batch), given.c
    c += batch_offset(given.batch_c, batch) + split * given.partial_pitch
    return Operands(parameters, a, b, c, scratch + RESERVED_SCRATCH)


@inner
def batch_offset(table: int, batch: int) -> int:
    """A batch's byte offset in a table, or 0 if there is no table."""
    return load_i64(table + 8 * batch) if table != 0 else 0


def over_units(contract: Inner, merges_columns: bool = False, least_merged: int = 0) -> Inner:
    """Applies `contract`, which has the signature of `blocked`'s result, to the units lo <= unit < hi.

    Neighbouring row blocks share B, and neighbouring column blocks of all rows share A, so they are computed as one.
    Column blocks of fewer columns than `least_merged`, even a last one, are computed alone: merged, they would be cut
    along k in another way.
    """

    @inner
    def contract_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given, unit = Field.read(parameters), lo
        row_blocks, column_blocks, width = given.row_blocks, given.column_blocks, given.columns_per_unit
        while unit < hi:
            row_block, column_block = unit % row_blocks, unit // row_blocks % column_blocks
            rest = unit // (row_blocks * column_blocks)
            split, batch = rest % given.k_splits, rest // given.k_splits
            row_run, column_run = min(hi - unit, row_blocks - row_block), 1
            if merges_columns and row_run == row_blocks and width >= least_merged:
                column_run = min((hi - unit) // row_blocks, column_blocks - column_block)
                last_columns = given.columns - (column_blocks - 1) * width
                if last_columns < least_merged and column_run > 1 and column_block + column_run == column_blocks:
                    column_run -= 1
            row, column, k = row_block * given.rows_per_unit, column_block * width, split * given.k_per_unit
            rows = min(row_run * given.rows_per_unit, given.rows - row)
            columns = min(column_run * width, given.columns - column)
            k_count = min(given.k_per_unit, given.k - k)
            at = operands(parameters, split, batch, scratch)
            unit += row_run * column_run
            prefetch_unit(parameters, unit)
            contract(at, Block(row, rows, column, columns, k, max(k_count, 0)))

    return contract_units
