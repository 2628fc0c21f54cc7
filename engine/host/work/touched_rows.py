"""Summed rows whose update skips rows that it would leave as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.codelets.language.record import block
from engine.codelets.rows.touched_rows import DRIFT_PROBED, TouchedRows, UpdatedTable, touched_rows
from engine.host.encoded import Encoded, HostWork
from engine.host.kernels.row_sums import encoded_row_sums, scratch_with
from engine.program.buffer import Address
from engine.program.nest import Nest
from engine.program.work.base import Footprint
from engine.program.work.row_sums import SummedRows


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
        inner = encoded_row_sums(replace(self.summed, reader=replace(reader, grain=self.row_grain)))
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
            scratch_with(self.summed, 8 * self.summed.width * DRIFT_PROBED * len(tables)),
            (*drift, *((before + word, codelet) for word, codelet in inner.calls)),
        )
        return replace(made, generation=TouchedRows.GENERATION)
