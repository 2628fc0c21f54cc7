"""Prefetching of the operands of a batched product's next unit, before the current unit is computed.

An attention's heads are small and far apart in memory, so neither the processor nor packing would read them before they
are needed.
"""

from __future__ import annotations

from engine.codelets.host.rows import word
from engine.codelets.language.build import inner
from engine.codelets.language.memory import load_i64, prefetch_to_second_level
from engine.codelets.products.contract_fields import Field, Layout, NextUnit

LINE = 64


@inner
def prefetch_unit(parameters: int, unit: int) -> None:
    """Prefetches, as NEXT_UNIT says, A and B for the row blocks of a batch from `unit` on, if there are any."""
    wanted, row_blocks = word(parameters, Field.NEXT_UNIT), word(parameters, Field.ROW_BLOCKS)
    batch, first = unit // row_blocks, unit % row_blocks * word(parameters, Field.ROWS_PER_UNIT)
    if wanted == 0 or batch >= word(parameters, Field.BATCHES):
        return
    if wanted & NextUnit.A:
        _prefetch_rows(parameters, batch, first)
    if wanted & NextUnit.B:
        _prefetch_columns(parameters, batch)


@inner
def _prefetch_rows(parameters: int, batch: int, first: int) -> None:
    """Prefetches rows of A from `first` on: along k, or along rows if these are contiguous."""
    a = word(parameters, Field.A) + load_i64(word(parameters, Field.BATCH_A) + 8 * batch)
    row_a, offset_a = word(parameters, Field.ROW_A), word(parameters, Field.OFFSET_A)
    rows, k = word(parameters, Field.ROWS), word(parameters, Field.K)
    if word(parameters, Field.RUN_A) == k:
        a += load_i64(offset_a)
        for row in range(first, rows):
            _prefetch_span(a + load_i64(row_a + 8 * row), 4 * k)
    else:
        a += load_i64(row_a + 8 * first)
        for i in range(k):
            _prefetch_span(a + load_i64(offset_a + 8 * i), 4 * (rows - first))


@inner
def _prefetch_columns(parameters: int, batch: int) -> None:
    """Prefetches all columns of B: along its rows, or along its columns if these are contiguous."""
    b = word(parameters, Field.B) + load_i64(word(parameters, Field.BATCH_B) + 8 * batch)
    offset_b, layout = word(parameters, Field.OFFSET_B), word(parameters, Field.LAYOUT_B)
    columns, k = word(parameters, Field.COLUMNS), word(parameters, Field.K)
    if layout == Layout.ROWS:
        for i in range(k):
            _prefetch_span(b + load_i64(offset_b + 8 * i), 4 * columns)
    elif layout == Layout.TRANSPOSED:
        b += load_i64(offset_b)
        for n in range(columns):
            _prefetch_span(b + n * word(parameters, Field.STRIDE_B), 4 * k)


@inner
def _prefetch_span(start: int, size: int) -> None:
    for line in range(start // LINE * LINE, start + size, LINE):
        prefetch_to_second_level(line)
