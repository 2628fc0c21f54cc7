"""A fused loop that reads sums of rows, which are computed in scratch right before it runs on them."""

from __future__ import annotations

from collections.abc import Iterator

from engine.frozen import frozen
from engine.program.buffer import Address, Buffer
from engine.program.work.base import Array, Footprint, Work, addresses_in
from engine.program.work.fused_loop import FusedLoop


@frozen
class SummedTable:
    """A table of float32 sums that is never stored in memory.

    Row p of those that are added begins p // repeat * outer + p % repeat * inner bytes after `updates`.
    """

    table: Buffer
    updates: Address
    repeat: int
    outer: int
    inner: int


@frozen
class SummedRows(Work):
    """`reader` runs on the chunks of tables of sums, which have one shape.

    A row has `width` elements, a chunk `chunk_bytes`; `ends` and `entries` are written by `sort_rows`.
    """

    reader: FusedLoop
    tables: tuple[SummedTable, ...]
    ends: Address
    entries: Address
    width: int
    chunk_bytes: int

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the reader except the tables, and those of the rows."""
        own = [a for a in addresses_in(self.reader) if not self.is_table(a.buffer)]
        return (*own, self.ends, self.entries, *(each.updates for each in self.tables))

    def is_table(self, buffer: Buffer) -> bool:
        """Whether a buffer is one of the tables of sums."""
        return any(each.table is buffer for each in self.tables)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints of the reader, except for the tables in scratch."""
        return (each for each in self.reader.footprints() if not self.is_table(each.address.buffer))


@frozen
class RowSort(Work):
    """Sorts the positions of row numbers by chunks of 2**shift of a table's `rows`.

    `ends` is s64 [chunks], the index after each chunk's last entry; `entries` s64 [row numbers].
    """

    ids: Array
    rows: int
    shift: int
    ends: Array
    entries: Array


@frozen
class ReducedRowsWork(Work):
    """A reduction of the rows `summed` of one table, run on the named rows; its reader has one loop and one result.

    `result` is the number of that result's operand, `named` the number of rows summed.
    """

    summed: SummedRows
    result: int
    named: int

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the summed rows."""
        return self.summed.addresses

    def footprints(self) -> Iterator[Footprint]:
        """Footprints of the reduction of all rows."""
        return self.summed.footprints()
