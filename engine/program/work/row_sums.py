"""A fused loop that reads sums of rows, which are computed in scratch right before it runs on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.codelets.record import block
from engine.codelets.row_sums import RowSums, row_sums
from engine.codelets.scratch import ScratchSpace, space_of
from engine.program.buffer import Address, Buffer
from engine.program.work.base import Encoded, Footprint, Work, addresses_in
from engine.program.work.fused_loop import FusedLoop


@dataclass(frozen=True, slots=True)
class SummedRows(Work):
    """`reader` runs on the chunks of a table of float32 sums, `table`, that is never stored in memory.

    A row has `width` elements, a chunk `chunk_bytes`. The row to add that has position p starts
    p // repeat * outer + p % repeat * inner bytes after `updates`; `ends` and `entries` are written by `sort_rows`.
    """

    reader: FusedLoop
    table: Buffer
    ends: Address
    entries: Address
    updates: Address
    repeat: int
    outer: int
    inner: int
    width: int
    chunk_bytes: int

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Those of the reader except the table, and those of the rows."""
        own = [a for a in addresses_in(self.reader) if a.buffer is not self.table]
        return (*own, self.ends, self.entries, self.updates)

    def footprints(self) -> Iterator[Footprint]:
        """Those of the reader, except for the table in scratch."""
        return (each for each in self.reader.footprints() if each.address.buffer is not self.table)

    def scratch_with(self, *more: int) -> ScratchSpace:
        """Areas for the sums, for the reader's parameters, and `more` of so many bytes."""
        return space_of(self.chunk_bytes, 8 * len(self.reader.encode().words), *more)

    def encode(self) -> Encoded:
        """The fields of `row_sums`, then the reader's block."""
        reader = self.reader.encode()
        head = RowSums(
            ends=self.ends,
            entries=self.entries,
            updates=self.updates,
            repeat=self.repeat,
            outer=self.outer,
            inner=self.inner,
            width=self.width,
            chunk_bytes=self.chunk_bytes,
            reader_words=len(reader.words),
            reader_sums=reader.words_of(self.table)[0],
        )
        return Encoded.of(
            row_sums,
            block(head, reader.parts((self.table,))),
            self.scratch_with(),
            ((RowSums.READER, reader.codelet),),
        )
