"""Sums of rows by row number, chunk by chunk of tables, fused with the codelet that reads them: no tables of sums.

`sort_rows` sorts the positions of a batch by the chunks of their rows, stably. `row_sums` sums the rows of a chunk in
the worker's scratch, from zero on and in the order of the batch, so that a scatter into zeros gives equal bits;
then the *reader*, a generated codelet, runs on the chunk's unit as if the tables were in memory. Tables have the same
shape and row numbers: an embedding's gradient, and its squares. Rows outside the tables are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.codelets.host.rows import copy_memory
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded, HostWork, encoded_loop
from engine.codelets.language.memory import call_code, load_i64, pointer, store_i64
from engine.codelets.language.record import Address, Record, block
from engine.codelets.language.scratch import ScratchSpace, after, space_of
from engine.codelets.rows.index_walk import load_index
from engine.frozen import frozen
from engine.ir.strides import index_signed
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.buffer import Buffer
from engine.program.work.base import Array, Footprint, addresses_in
from engine.program.work.fused_loop import FusedLoop


class SortRows(Record):
    """Parameters of `sort_rows`. Unit: everything, as order matters."""

    ids: Address = 0  # the row numbers
    index_bytes: int
    index_signed: int
    named: int  # number of row numbers
    rows: int  # of the table
    shift: int  # a chunk has 2**SHIFT rows
    chunks: int
    ends: Address = 0  # int64 [CHUNKS]: index after each chunk's last entry
    entries: Address = 0  # int64 [NAMED]: position * 2**32 + row inside the chunk


class RowSums(Record):
    """Parameters of `row_sums`, before its RowSources and the parameters of the reader. Unit: a chunk of rows."""

    ends: Address = 0
    entries: Address = 0
    sources: int
    width: int  # float32 elements of a row
    chunk_bytes: int
    reader: Address = 0  # the codelet
    reader_words: int  # words of the reader's parameters


class RowSource(Record):
    """The rows that are added to one table."""

    updates: Address = 0  # row of position p at p // REPEAT * OUTER + p % REPEAT * INNER bytes
    repeat: int
    outer: int
    inner: int
    reader_sums: int  # the index of the reader's parameter word that holds the address of the table of sums


@inner
def _row_number(given: SortRows, position: int) -> int:
    return load_index(given.ids + given.index_bytes * position, given.index_bytes, given.index_signed)


@codelet
def sort_rows(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Counting sort of the positions by chunk."""
    if lo >= hi:
        return
    given = SortRows.read(parameters)
    for chunk in range(given.chunks):
        store_i64(given.ends + 8 * chunk, 0)
    for position in range(given.named):
        row = _row_number(given, position)
        if 0 <= row < given.rows:
            end = given.ends + 8 * (row >> given.shift)
            store_i64(end, load_i64(end) + 1)
    begin = 0
    for chunk in range(given.chunks):
        count = load_i64(given.ends + 8 * chunk)
        store_i64(given.ends + 8 * chunk, begin)
        begin += count
    for position in range(given.named):
        row = _row_number(given, position)
        if 0 <= row < given.rows:
            end = given.ends + 8 * (row >> given.shift)
            at = load_i64(end)
            store_i64(given.entries + 8 * at, (position << 32) | (row & ((1 << given.shift) - 1)))
            store_i64(end, at + 1)


@inner
def clear(address: int, count: int) -> None:
    """Sets `count` float32 to zero."""
    values = pointer(address, "float32")
    for i in range(count):
        values[i] = 0


@inner
def _add(target: int, source: int, count: int) -> None:
    values = pointer(target, "float32")
    updates = pointer(source, "float32")
    for i in range(count):
        values[i] += updates[i]


@inner
def reader_of(summing: int, given: RowSums) -> int:
    """The address of the reader's parameters; `given` is the RowSums at `summing`, here and below."""
    return summing + 8 * (RowSums.WORDS + RowSource.WORDS * given.sources)


@inner
def entries_of(given: RowSums, chunk: int) -> tuple[int, int]:
    """The first entry of a chunk, and the one after its last."""
    return load_i64(given.ends + 8 * (chunk - 1)) if chunk else 0, load_i64(given.ends + 8 * chunk)


@inner
def row_of(given: RowSums, entry: int) -> int:
    """The row of an entry, in its chunk."""
    return load_i64(given.entries + 8 * entry) & 0xFFFFFFFF


@inner
def put_sums(summing: int, given: RowSums, block: int, sums: int) -> None:
    """Writes the tables' addresses for the reader at `block`: the first is `sums`, the others follow chunk by chunk."""
    for number in range(given.sources):
        source = RowSource.read(summing + 8 * RowSums.WORDS, number)
        store_i64(block + 8 * source.reader_sums, sums + given.chunk_bytes * number)


@inner
def sum_rows(summing: int, given: RowSums, sums: int, begin: int, end: int) -> None:
    """Adds the rows of entries begin <= entry < end to the chunk's sums of each table."""
    for number in range(given.sources):
        source, table = RowSource.read(summing + 8 * RowSums.WORDS, number), sums + given.chunk_bytes * number
        for entry in range(begin, end):
            position = load_i64(given.entries + 8 * entry) >> 32
            row = source.updates + position // source.repeat * source.outer + position % source.repeat * source.inner
            _add(table + 4 * given.width * row_of(given, entry), row, given.width)


@inner
def clear_rows(given: RowSums, sums: int, begin: int, end: int) -> None:
    """Sets the sums of these entries' rows to zero again."""
    for number in range(given.sources):
        for entry in range(begin, end):
            clear(sums + given.chunk_bytes * number + 4 * given.width * row_of(given, entry), given.width)


@codelet
def row_sums(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Sums the chunks lo <= chunk < hi and runs the reader on each."""
    given, sums = RowSums.read(parameters), scratch + RESERVED_SCRATCH
    sums_bytes = given.chunk_bytes * given.sources
    block = after(sums, sums_bytes)
    copy_memory(block, reader_of(parameters, given), 8 * given.reader_words)
    clear(sums, sums_bytes >> 2)
    for chunk in range(lo, hi):
        begin, end = entries_of(given, chunk)
        sum_rows(parameters, given, sums, begin, end)
        put_sums(parameters, given, block, sums - chunk * given.chunk_bytes)
        call_code(given.reader, block, chunk, chunk + 1, scratch)
        clear_rows(given, sums, begin, end)


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
class SummedRows(HostWork):
    """`reader` runs on the chunks of tables of sums, which have one shape.

    A row has `width` elements, a chunk `chunk_bytes`; a RowSort writes `ends` and `entries`.
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

    def scratch(self, *more: int) -> ScratchSpace:
        """Areas of scratch for the sums, for the reader's parameters, and of each number of bytes in `more`."""
        return space_of(self.chunk_bytes * len(self.tables), 8 * len(encoded_loop(self.reader).words), *more)

    def encode(self) -> Encoded:
        """The fields of `row_sums`, then the reader's block."""
        reader = encoded_loop(self.reader)
        head = RowSums.of(self, reader=0, sources=len(self.tables), reader_words=len(reader.words))
        sources = [RowSource.of(each, reader_sums=reader.words_of(each.table)[0]) for each in self.tables]
        return Encoded.of(
            row_sums,
            block(head, sources, reader.parts([each.table for each in self.tables])),
            self.scratch(),
            ((RowSums.READER, reader.codelet),),
        )


@frozen
class RowSort(HostWork):
    """Sorts the positions of row numbers by chunks of 2**shift of a table's `rows`.

    `ends` is s64 [chunks], the index after each chunk's last entry; `entries` s64 [row numbers].
    """

    ids: Array
    rows: int
    shift: int
    ends: Array
    entries: Array

    def encode(self) -> Encoded:
        """The fields of `sort_rows`."""
        ids = self.ids.shape
        parameters = SortRows.of(
            self,
            index_bytes=ids.dtype.itemsize,
            index_signed=index_signed(ids),
            named=self.entries.shape.elements,
            chunks=self.ends.shape.elements,
        )
        return Encoded.of(sort_rows, block(parameters))
