"""Sums of rows fused with an update that leaves untouched rows as they are: only touched rows are read and written.

A row is untouched while its moments are +0 and no element of its other tables is -0. If its sum is zero as well, the
update gives moments of zero and adds a zero to the other tables, so it changes no bit. Whether this holds with the
scalars of a step is found out by running the update on a *probe*: rows in scratch with moments of zero, and with 0 and
the least normal number, which any addend but a zero would change, in the other tables.

Tables that an update changes in every row, as weight decay does, are *drifting*. The *drift* is the update without
gradients and moments. It runs on untouched rows if, on the probe, it gives the update's results, and zeros for zeros.

Flags of touched rows are kept from step to step. The flags of a chunk belong to a *generation*: the host begins a new
one when others may have written the tables. A chunk of an older generation is updated as a whole, and its flags are set
by its new values.

Summed rows whose update skips rows that it would leave as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.codelets.host.rows import copy_memory
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.memory import call_code, load_i8, load_i32, load_i64, store_i8, store_i32, store_i64
from engine.codelets.language.record import Address, Record, block, word
from engine.codelets.language.scratch import after
from engine.codelets.rows.index_walk import fetch_lines
from engine.codelets.rows.row_sums import (
    RowSums,
    SummedRows,
    clear,
    clear_rows,
    entries_of,
    put_sums,
    reader_of,
    row_of,
    sum_rows,
)
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.nest import Nest
from engine.program.work.base import Footprint

LEAST_NORMAL = 0x00800000
"""The bits of the least normal float32."""
NEGATIVE_ZERO = -(1 << 31)
MOST_TOUCHED = 6
"""A chunk's touched rows are updated one by one if they are at most one in so many rows: with a table far beyond the
caches, a row alone costs some six times as much as in a whole chunk (measured on a Xeon)."""
PROBED, DRIFT_PROBED = 2, 4
"""Rows of the probe: of 0 and of the least normal number. Where tables drift, four: of 0, of -0, of the negative least
normal number, which a drift may round to -0, and of 1.
"""
HALF, ONE, TWO = 0x3F000000, 0x3F800000, 0x40000000
"""The bits of 1 / 2, 1 and 2: a drift of 1 to less than a half may round other numbers to -0, which becomes +0."""
KEPT, MOMENT, DRIFTING = 0, 1, 2
"""Kinds of tables."""


class TouchedRows(Record):
    """Parameters of `touched_rows`, before its UpdatedTables and the parameters of `row_sums`.

    The reader's units are rows. Unit: a chunk of rows.
    """

    flags: Address = 0  # int8 [rows]: 1 for touched ones
    counts: Address = 0  # int64 [chunks]: generation * 2**32 + number of touched rows
    generation: int  # from 1 on
    tables: int
    rows: int
    chunk_rows: int
    drift: Address = 0  # the codelet with the reader's parameters; 0 if no table drifts


class UpdatedTable(Record):
    """A table that the reader reads and updates in place."""

    load: int  # indices of the reader's parameter words with its address: to read
    store: int  # to write
    kind: int


class Touching(NamedTuple):
    """The parameters: the fields, the address of the UpdatedTables, and those of the sums."""

    fields: TouchedRows
    tables: int
    summed: RowSums
    summing: int


@inner
def _address(given: Touching, table: UpdatedTable, row: int) -> int:
    """The address of a table's row."""
    return word(reader_of(given.summing, given.summed), table.load) + 4 * given.summed.width * row


@inner
def _probe(given: Touching, reader: int, block: int, rows: int, probed: int, scratch: int) -> None:
    """Runs a reader on the probe, which it puts at `rows`, one table after the other."""
    width, pitch = given.summed.width, 4 * given.summed.width * probed
    clear(rows, width * probed * given.fields.tables)
    for number in range(given.fields.tables):
        table, first = UpdatedTable.read(given.tables, number), rows + pitch * number
        store_i64(block + 8 * table.load, first)
        store_i64(block + 8 * table.store, first)
        if table.kind != MOMENT:
            for at in range(width, width * probed):
                value = LEAST_NORMAL
                if table.kind == DRIFTING:
                    value = NEGATIVE_ZERO if at < 2 * width else NEGATIVE_ZERO + LEAST_NORMAL if at < 3 * width else ONE
                store_i32(first + 4 * at, value)
    call_code(reader, block, 0, probed, scratch)


@inner
def _keeps_untouched_rows(given: Touching, sums: int, block: int, rows: int, scratch: int) -> bool:
    """Whether this step's update changes untouched rows only by the drift. `rows` is space for two probes."""
    summed, width, tables, drift = given.summed, given.summed.width, given.fields.tables, given.fields.drift
    probed = PROBED if drift == 0 else DRIFT_PROBED
    pitch = 4 * width * probed
    copy_memory(block, reader_of(given.summing, summed), 8 * summed.reader_words)
    put_sums(given.summing, summed, block, sums)
    _probe(given, summed.reader, block, rows, probed, scratch)
    other = rows + pitch * tables
    if drift != 0:
        _probe(given, drift, block, other, probed, scratch)
    for number in range(tables):
        kind = UpdatedTable.read(given.tables, number).kind
        for at in range(width * probed):
            found = load_i32(rows + pitch * number + 4 * at)
            if kind == DRIFTING:
                if found != load_i32(other + pitch * number + 4 * at):
                    return False
                if at < width and found != 0 and found != NEGATIVE_ZERO:
                    return False
                if at >= 3 * width and (found < HALF or found > TWO):
                    return False
            elif found != (LEAST_NORMAL if kind == KEPT and at >= width else 0):
                return False
    return True


@inner
def _is_touched(given: Touching, row: int) -> bool:
    """Whether the update may change a row whose sum is zero."""
    found = 0
    for number in range(given.fields.tables):
        table = UpdatedTable.read(given.tables, number)
        address = _address(given, table, row)
        if table.kind == MOMENT:
            for at in range(given.summed.width):
                found |= load_i32(address + 4 * at)
        elif table.kind == KEPT:
            for at in range(given.summed.width):
                found |= 1 if load_i32(address + 4 * at) == NEGATIVE_ZERO else 0
    return found != 0


@inner
def _flag(given: Touching, first: int, end: int) -> int:
    """Flags touched rows first <= row < end by their values, and counts them."""
    count = 0
    for row in range(first, end):
        touched = 1 if _is_touched(given, row) else 0
        store_i8(given.fields.flags + row, touched)
        count += touched
    return count


@inner
def _flag_summed(given: Touching, first: int, begin: int, end: int) -> int:
    """Flags rows of entries begin <= entry < end in the chunk from row `first` on; returns how many were untouched."""
    count = 0
    for entry in range(begin, end):
        flag = given.fields.flags + first + row_of(given.summed, entry)
        if load_i8(flag) == 0:
            store_i8(flag, 1)
            count += 1
    return count


@inner
def _next_touched(flags: int, row: int, end: int) -> int:
    """The first touched row from `row` on; `end` if there is none."""
    while row < end and load_i8(flags + row) == 0:
        row += 8 if row & 7 == 0 and row + 8 <= end and load_i64(flags + row) == 0 else 1
    return row


@inner
def _fetch(given: Touching, first: int, end: int) -> None:
    """Prefetches the touched rows first <= row < end."""
    row = _next_touched(given.fields.flags, first, end)
    while row < end:
        for number in range(given.fields.tables):
            address = _address(given, UpdatedTable.read(given.tables, number), row)
            fetch_lines(address, 4 * given.summed.width + (address & 63))
        row = _next_touched(given.fields.flags, row + 1, end)


@inner
def _begin_chunk(given: Touching, chunk: int) -> None:
    """Flags the rows that are summed in a chunk with known flags, and prefetches the touched ones."""
    fields = given.fields
    count = load_i64(fields.counts + 8 * chunk)
    if count >> 32 == fields.generation:
        first = chunk * fields.chunk_rows
        begin, end = entries_of(given.summed, chunk)
        count += _flag_summed(given, first, begin, end)
        store_i64(fields.counts + 8 * chunk, count)
        if 0 < count & 0xFFFFFFFF <= fields.chunk_rows // MOST_TOUCHED:
            _fetch(given, first, min(first + fields.chunk_rows, fields.rows))


@inner
def _update_touched(given: Touching, block: int, first: int, end: int, scratch: int) -> None:
    """Runs the reader on the touched rows first <= row < end, and the drift on others, neighbours together."""
    flags, drift = given.fields.flags, given.fields.drift
    done, row = first, _next_touched(flags, first, end)
    while row < end:
        if drift != 0 and done < row:
            call_code(drift, block, done, row, scratch)
        begin = row
        while row < end and load_i8(flags + row) != 0:
            row += 1
        call_code(given.summed.reader, block, begin, row, scratch)
        done, row = row, _next_touched(flags, row, end)
    if drift != 0 and done < end:
        call_code(drift, block, done, end, scratch)


@codelet
def touched_rows(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Sums the chunks lo <= chunk < hi, and runs the reader on the touched rows of each."""
    fields, tables = TouchedRows.read(parameters), parameters + 8 * TouchedRows.WORDS
    summing = tables + 8 * UpdatedTable.WORDS * fields.tables
    summed, chunk_rows = RowSums.read(summing), fields.chunk_rows
    given = Touching(fields, tables, summed, summing)
    sums, sums_bytes = scratch + RESERVED_SCRATCH, summed.chunk_bytes * summed.sources
    block = after(sums, sums_bytes)
    clear(sums, sums_bytes >> 2)
    keeps = _keeps_untouched_rows(given, sums, block, after(block, 8 * summed.reader_words), scratch)
    copy_memory(block, reader_of(summing, summed), 8 * summed.reader_words)
    if keeps and lo < hi:
        _begin_chunk(given, lo)
    for chunk in range(lo, hi):
        if keeps and chunk + 1 < hi:
            _begin_chunk(given, chunk + 1)
        count = load_i64(fields.counts + 8 * chunk)
        known = keeps and count >> 32 == fields.generation
        if known and fields.drift == 0 and count & 0xFFFFFFFF == 0:
            continue
        begin, end = entries_of(summed, chunk)
        first = chunk * chunk_rows
        last = min(first + chunk_rows, fields.rows)
        sum_rows(summing, summed, sums, begin, end)
        put_sums(summing, summed, block, sums - chunk * summed.chunk_bytes)
        if known and count & 0xFFFFFFFF <= chunk_rows // MOST_TOUCHED:
            _update_touched(given, block, first, last, scratch)
        else:
            call_code(summed.reader, block, first, last, scratch)
        if not known:
            flagged = (fields.generation << 32) + _flag(given, first, last) if keeps else 0
            store_i64(fields.counts + 8 * chunk, flagged)
        clear_rows(summed, sums, begin, end)


@dataclass(frozen=True, slots=True)
class TouchedRowsWork(HostWork):
    """An update with `summed` rows that runs on touched rows alone; with `row_grain` a unit of its reader is a row.

    `tables` are the numbers of the reader's operands through which it reads and writes a table in place, and the
    kind of table. `flags` is s8 [rows], `counts` s64 [chunks]. `drift` runs on untouched rows, if there are drifting
    tables, with the accesses of the reader's nest.
    """

    summed: SummedRows
    row_grain: int
    tables: tuple[tuple[int, int, int], ...]
    flags: Address
    counts: Address
    drift: Nest | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the summed rows, of the flags and of the counts."""
        return (*self.summed.addresses, self.flags, self.counts)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints of the update of all rows."""
        return self.summed.footprints()

    def encode(self) -> Encoded:
        """The fields of `touched_rows`, with generation 1, the tables, then the block of the summed rows."""
        reader = self.summed.reader
        inner = replace(self.summed, reader=replace(reader, grain=self.row_grain)).encode()
        nest, flags = reader.nest, self.flags.buffer
        chunk_rows = self.summed.chunk_bytes // (4 * self.summed.width)
        tables = [
            UpdatedTable(load=nest.access_word(load), store=nest.access_word(store), kind=kind)
            for load, store, kind in self.tables
        ]
        head = TouchedRows(
            flags=self.flags,
            counts=self.counts,
            generation=1,
            tables=len(tables),
            rows=flags.shape.elements,
            chunk_rows=chunk_rows,
        )
        before = TouchedRows.WORDS + UpdatedTable.WORDS * len(tables)
        drift = () if self.drift is None else ((TouchedRows.DRIFT, self.drift),)
        made = Encoded.of(
            touched_rows,
            block(head, tables, inner.parts()),
            self.summed.scratch(8 * self.summed.width * DRIFT_PROBED * len(tables)),
            (*drift, *((before + word, codelet) for word, codelet in inner.calls)),
        )
        return replace(made, generation=TouchedRows.GENERATION)
