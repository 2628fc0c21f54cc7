"""The parameter block of the contraction codelets, derived from the operands' addresses and tables."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from engine.codelets.language.record import Address, Record, Table
from engine.errors import InternalError
from engine.program.work.offsets import GROUP, rows_together, run_of, steps_of

# Except FAR and MANY_COLUMNS, tuned on two cores of a Xeon with AVX-512 (48 KiB first-level, 2 MiB second-level cache),
# November 2026.
PACK_ROWS = 48  # packing B does not pay for fewer rows
FAR = 2048  # bytes between neighbouring k of A from which packing pays: they share few cache sets and touch many pages
MANY_COLUMNS = 256  # columns from which packing pays at an eighth of that distance: they reuse packed rows of A often


MOST_AHEAD = 3  # arrays that a unit prefetches for an optimizer's update after it


class Field(Record):
    """The parameter block. Tables are int64 and hold byte offsets."""

    a: Address
    b: Address
    c: Address
    row_a: Table  # [rows]
    row_c: Table  # [rows]
    offset_a: Table  # [k]
    offset_b: Table  # [k]
    rows: int
    columns: int
    k: int
    stride_b: int  # bytes between the columns of B
    layout_b: int  # a Layout
    pitch_b: int  # bytes between B's rows where the layout is ROWS; the length of a run where it is RUNS
    pack_a: int  # size of contiguous groups of rows of A; 1: all rows are contiguous; 0: packing would not pay
    accumulate: int  # 1: adds to C; 0: replaces C
    rows_per_unit: int
    columns_per_unit: int
    k_per_unit: int
    row_blocks: int
    column_blocks: int
    k_splits: int
    partial_pitch: int  # bytes between the partial C of one k split and the next
    batches: int
    batch_a: Table  # [batches], offsets added to the base addresses
    batch_b: Table
    batch_c: Table
    run_a: int  # length of A's contiguous runs along k; at most K
    ahead_count: int = 0  # arrays of C's rows and columns, contiguous, whose rows are read after each unit, up to three
    ahead_0: Address = 0
    ahead_1: Address = 0
    ahead_2: Address = 0
    next_unit: int = 0  # a sum of NextUnit: operands of the next unit to prefetch, if each unit has its own batch


class NextUnit(IntEnum):
    """Operands of the next unit that a unit prefetches."""

    A = 1
    B = 2


class Layout(IntEnum):
    """Memory layouts of B."""

    ROWS = 0  # columns contiguous, rows PITCH_B apart
    SCATTERED_ROWS = 1  # columns contiguous
    TRANSPOSED = 2  # the elements along k contiguous
    ELEMENTS = 3  # anything else
    RUNS = 4  # like TRANSPOSED in runs along k, all of one length
    PANELS = 5  # packed as panels, one after the other


def contract_record(
    *,
    a: Address,
    b: Address,
    c: Address,
    row_a: np.ndarray,
    row_c: np.ndarray,
    offset_a: np.ndarray,
    offset_b: np.ndarray,
    columns: int,
    stride_b: int,
    accumulate: bool = False,
    rows_per_unit: int = 96,
    columns_per_unit: int = 256,
    k_per_unit: int | None = None,
    partial_pitch: int = 0,
    batch_a: np.ndarray | None = None,
    batch_b: np.ndarray | None = None,
    batch_c: np.ndarray | None = None,
    element_bytes: int = 4,
    bytes_of_b: int | None = None,
    panels: bool = False,
    ahead: Sequence[Address] = (),
    next_unit: int = 0,
) -> Field:
    """The parameter block of the contraction

        C[row_c[m] + n * size] (+)= sum over k of A[row_a[m] + offset_a[k]] * B[offset_b[k] + n * stride_b]

    a, b, c: addresses. row_a, row_c: int64 [rows]; offset_a, offset_b: int64 [k]; batch_a, batch_b, batch_c: int64
    [batches] or all None. The tables are C-contiguous and hold byte offsets. element_bytes: the size of an element of A
    and B; bytes_of_b: the size of B's elements, if different. panels: B has been packed as panels, with all of K;
    offset_b and stride_b are then not used. ahead: at most MOST_AHEAD float32 [rows, columns], whose rows a unit
    prefetches for what follows. next_unit: a sum of NextUnit, the operands whose part for the next unit is prefetched.

    Work is partitioned into units of rows_per_unit x columns_per_unit x k_per_unit, numbered
    ((batch * k_splits + split) * column_blocks + column_block) * row_blocks + row_block. Split s of k writes
    (or adds to) its own partial sum at c + s * partial_pitch; with k_per_unit None there is one split.

    For speed: rows_per_unit a multiple of 48, columns_per_unit a multiple of 64, at least 256 if A is transposed.

    Raises InternalError for tables of inconsistent sizes and for units without rows or columns.
    """
    _check_table("row_a", row_a, len(row_c))
    _check_table("row_c", row_c, len(row_a))
    _check_table("offset_a", offset_a, len(offset_b))
    _check_table("offset_b", offset_b, len(offset_a))
    batches = _check_batches(batch_a, batch_b, batch_c)
    rows, k = len(row_a), len(offset_a)
    k_per_unit = k_per_unit or max(k, 1)
    for name, value in (("rows_per_unit", rows_per_unit), ("columns_per_unit", columns_per_unit)):
        if value < 1:
            raise InternalError(f"Expected {name} of at least 1. Received: {value}.")
    layout, pitch = (Layout.PANELS, 0) if panels else _layout(offset_b, stride_b, bytes_of_b or element_bytes)
    run_a = run_of(offset_a, element_bytes)
    if element_bytes < 4:  # packed in any case
        packs_a = rows_together(row_a, element_bytes) if run_a < GROUP // 2 else 0
    else:
        packs_a = _packs(row_a, offset_a, element_bytes, columns)
    return Field(
        a=a,
        b=b,
        c=c,
        row_a=row_a,
        row_c=row_c,
        offset_a=offset_a,
        offset_b=offset_b,
        rows=rows,
        columns=columns,
        k=k,
        stride_b=stride_b,
        layout_b=layout,
        pitch_b=pitch,
        pack_a=packs_a,
        accumulate=accumulate,
        rows_per_unit=rows_per_unit,
        columns_per_unit=columns_per_unit,
        k_per_unit=k_per_unit,
        row_blocks=-(-rows // rows_per_unit),
        column_blocks=-(-columns // columns_per_unit),
        k_splits=max(1, -(-k // k_per_unit)),
        partial_pitch=partial_pitch,
        batches=batches,
        batch_a=batch_a,
        batch_b=batch_b,
        batch_c=batch_c,
        run_a=run_a,
        ahead_count=len(ahead),
        next_unit=next_unit,
        **{f"ahead_{number}": address for number, address in enumerate(ahead)},
    )


def right_operand_record(
    b: Address, offset_b: np.ndarray, columns: int, stride_b: int, element_bytes: int = 4
) -> Field:
    """The parameter block for codelets that read B alone, with the arguments of `contract_record`."""
    row = np.zeros(1, np.int64)
    return contract_record(
        a=0,
        b=b,
        c=0,
        row_a=row,
        row_c=row,
        offset_a=offset_b,
        offset_b=offset_b,
        columns=columns,
        stride_b=stride_b,
        element_bytes=element_bytes,
    )


def _check_table(name: str, table: np.ndarray, length: int) -> None:
    if table.dtype != np.int64 or table.shape != (length,) or not table.flags.c_contiguous:
        raise InternalError(
            f"Expected {name} to be a C-contiguous int64 table of length {length}. "
            f"Received: {table.dtype}{list(table.shape)}."
        )


def _check_batches(*tables: np.ndarray | None) -> int:
    """The number of batches; without tables it is 1."""
    given = [table for table in tables if table is not None]
    if not given:
        return 1
    if len(given) != len(tables):
        raise InternalError(f"Expected three batch tables or none. Received: {len(given)}.")
    for table in given:
        _check_table("each batch table", table, len(given[0]))
    return len(given[0])


def _layout(offset_b: np.ndarray, stride_b: int, element_bytes: int) -> tuple[Layout, int]:
    """B's layout and pitch."""
    steps, constant = steps_of(offset_b)
    pitch = int(steps[0]) if len(steps) and constant else 0
    if stride_b == element_bytes:
        return (Layout.ROWS, pitch) if constant else (Layout.SCATTERED_ROWS, 0)
    if constant and pitch == element_bytes:
        return Layout.TRANSPOSED, pitch
    breaks = np.flatnonzero(steps != element_bytes)
    run = int(breaks[0]) + 1 if len(breaks) else 0
    if run >= GROUP and bool(np.all((breaks + 1) % run == 0)):
        return Layout.RUNS, run
    return Layout.ELEMENTS, 0


def _packs(row_a: np.ndarray, offset_a: np.ndarray, element_bytes: int, columns: int) -> int:
    """Alignment of the first row of a packed block of A; 0 if its elements along k are not far apart."""
    if len(offset_a) < 2:
        return 0
    far = FAR // 8 if columns >= MANY_COLUMNS else FAR
    steps, constant = steps_of(offset_a)
    distant = abs(steps[0]) >= far if constant else float(np.median(np.abs(steps))) >= far
    return rows_together(row_a, element_bytes) if distant else 0
