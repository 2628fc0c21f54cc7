"""The parameter block of the contraction codelets, derived from the operands' addresses and tables."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from engine.codelets.language.record import Address, Record, Table
from engine.codelets.products.micro_kernel import panel_vectors, vectors_cycles
from engine.machine_code.processor import lanes
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import GROUP, Offsets, rows_together, steps_of

# Except FAR and MANY_COLUMNS, tuned on two cores of a Xeon with AVX-512 (48 KiB first-level, 2 MiB second-level cache),
# November 2026.
PACK_ROWS = 48  # packing B does not pay for fewer rows
FAR = 2048  # bytes between neighbouring k of A from which packing pays: they share few cache sets and touch many pages
# Columns from which packing pays at an eighth of that distance, as they reuse packed rows of A often.
MANY_COLUMNS = 256 if lanes() == 16 else 512


# Last columns with kernels of their own, by products of random sizes on two cores of a Zen 5, December 2026.
MOST_TAIL = 3 * lanes() // 4  # columns
FEWEST_ROWS = 4 * lanes()  # if lanes are rows
TOTAL_CYCLES = 2  # for adding the lanes of a sum
PEAK_SHARE = 0.8  # of the processor's peak
MOST_AHEAD = 3  # arrays that a unit prefetches for an optimizer's update after it


class RightOperand(Record):
    """The part of a parameter block that is about B. Tables are int64 and hold byte offsets."""

    b: Address
    offset_b: Table  # [k]
    columns: int
    k: int
    stride_b: int  # bytes between the columns of B
    layout_b: int  # a Layout
    pitch_b: int  # bytes between B's rows where the layout is ROWS; the length of a run where it is RUNS


class Panels(RightOperand):
    """The parameter block of packing: the right operand, and the address of its panels."""

    panels: Address


class Field(RightOperand):
    """The parameter block."""

    a: Address
    c: Address
    row_a: Table  # [rows]
    row_c: Table  # [rows]
    offset_a: Table  # [k]
    rows: int
    pack_a: int  # size of contiguous groups of rows of A; 1: all rows are contiguous; 0: packing would not pay
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
    ahead_count: int = 0  # arrays with C's rows, contiguous, that are read after each unit, up to three
    ahead_0: Address = 0
    ahead_1: Address = 0
    ahead_2: Address = 0
    ahead_pitch_0: int = 0  # bytes of their rows, at most those of C's
    ahead_pitch_1: int = 0
    ahead_pitch_2: int = 0
    tail: int = 0  # a Tail: the lanes in which the last columns are computed
    parts_b: Address = 0  # B as bfloat16 parts that `PanelPacking` has packed, or 0
    next_unit: int = 0  # a sum of NextUnit: operands of the next unit to prefetch, if each unit has its own batch


class NextUnit(IntEnum):
    """Operands of the next unit that a unit prefetches."""

    A = 1
    B = 2


class Tail(IntEnum):
    """The lanes of the kernels of the last columns."""

    COLUMNS = 0  # as of all columns
    TERMS = 1
    ROWS = 2


class Layout(IntEnum):
    """Memory layouts of B."""

    ROWS = 0  # columns contiguous, rows PITCH_B apart
    SCATTERED_ROWS = 1  # columns contiguous
    TRANSPOSED = 2  # the elements along k contiguous
    ELEMENTS = 3  # anything else
    RUNS = 4  # like TRANSPOSED in runs along k, all of one length
    PANELS = 5  # packed as panels, one after the other


def contract_record(work: Contraction) -> Field:
    """The parameter block of a contraction.

    Units are numbered ((batch * k_splits + split) * column_blocks + column_block) * row_blocks + row_block. For speed,
    they have a multiple of 48 rows, and a multiple of 64 columns, at least 256 if A is transposed.
    """
    (batches, rows, columns, _), grid, run_a = work.size, work.grid, work.run_a
    row_a, offset_a = work.row_a.table, work.k_a.table
    if work.item_bytes < 4:  # packed in any case
        packs_a = rows_together(row_a, work.item_bytes) if run_a < GROUP // 2 else 0
    else:
        packs_a = _packs(row_a, offset_a, work.item_bytes, columns)
    batch_a, batch_b, batch_c = (
        each.table if batches != 1 else None for each in (work.batch_a, work.batch_b, work.batch_c)
    )
    right = right_operand(work.b, work.k_b, columns, work.stride_b, work.bytes_of_b)
    panels = {"layout_b": Layout.PANELS, "pitch_b": 0} if work.panels else {}
    ahead: dict[str, Any] = {f"ahead_{number}": address for number, address in enumerate(work.ahead)}
    ahead |= {f"ahead_pitch_{n}": address.buffer.shape.bytes // rows for n, address in enumerate(work.ahead)}
    return Field.of(
        work,
        **vars(right) | panels | ahead,
        offset_a=offset_a,
        rows=rows,
        pack_a=packs_a,
        rows_per_unit=grid.rows,
        columns_per_unit=grid.columns,
        k_per_unit=grid.k,
        row_blocks=-(-rows // grid.rows),
        column_blocks=-(-columns // grid.columns),
        k_splits=work.splits,
        batches=batches,
        batch_a=batch_a,
        batch_b=batch_b,
        batch_c=batch_c,
        tail=_tail(work, packs_a),
        ahead_count=len(work.ahead),
    )


def _tail(work: Contraction, packs_a: int) -> Tail:
    """The lanes in which a float32 product's last columns are computed; `packs_a` is the field PACK_A."""
    (_, rows, columns, k), last = work.size, work.columns % lanes()
    whole = work.grid.columns >= columns or work.grid.columns % lanes() == 0
    if not work.is_float32 or not whole or not 0 < last <= MOST_TAIL:
        return Tail.COLUMNS
    terms, vectors = min(k, work.grid.k), columns // lanes() % panel_vectors() + 1
    one_vector = vectors_cycles(vectors) - vectors_cycles(vectors - 1)
    if last * (terms / lanes() / 2 + TOTAL_CYCLES) > terms * one_vector * PEAK_SHARE:
        return Tail.COLUMNS
    if work.run_a == k:
        return Tail.TERMS
    contiguous = rows >= FEWEST_ROWS and not packs_a and bool(np.all(np.diff(work.row_a.table) == 4))
    return Tail.ROWS if contiguous else Tail.COLUMNS


def right_operand(b: Address, k_b: Offsets, columns: int, stride_b: int, element_bytes: int = 4) -> RightOperand:
    """The fields of a B whose rows are at `k_b`, and whose columns are `stride_b` bytes apart."""
    layout, pitch = _layout(k_b.table, stride_b, element_bytes)
    sizes = {"columns": columns, "k": len(k_b), "stride_b": stride_b}
    return RightOperand(b=b, offset_b=k_b.table, **sizes, layout_b=layout, pitch_b=pitch)


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
