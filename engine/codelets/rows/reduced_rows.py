"""Reductions of row sums to one number, read from named rows alone: a gradient's norm, or whether it is finite.

A square of a zero is +0, and +0 added to a sum of squares changes no bit; zeros are finite. So the *reader*, a
generated codelet that reduces the elements of a unit, runs on the sums of the named rows, in order, with zeros between
them. The zeros move each element to the vector and lane that it has in the whole table, among those side by side.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.codelets.host.rows import copy_memory
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.lanes import SIDE_BY_SIDE
from engine.codelets.language.memory import call_code, load_i8, load_i64, store_i8, store_i64
from engine.codelets.language.record import Address, Record, block, word
from engine.codelets.language.scratch import after
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
from engine.frozen import frozen
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.processor import lanes
from engine.program.work.base import Footprint
from engine.program.work.fused_loop import Strided

PLACES = 16 * SIDE_BY_SIDE
"""Elements of the widest vectors that are reduced side by side, a multiple of those of all narrower ones."""
TOGETHER = lanes() * SIDE_BY_SIDE
"""Elements of this processor's vectors side by side. A unit's last, fewer elements are reduced vector by vector."""


class ReducedRows(Record):
    """Parameters of `reduced_rows`, before the parameters of `row_sums` for one table. Unit: elements of the table."""

    elements: int  # of the table
    unit_elements: int
    chunk_rows: int
    grain: int  # indices of the reader's parameter words: of the size of a unit
    extent: int  # of the elements of the table
    result: int  # of the address of the results
    pitch: int  # bytes between the results of units


@inner
def _flag(summed: RowSums, flags: int, begin: int, end: int, flag: int) -> None:
    """Sets the flags of the rows of entries begin <= entry < end in their chunk."""
    for entry in range(begin, end):
        store_i8(flags + row_of(summed, entry), flag)


@inner
def _filled(taken: int, count: int, place: int) -> int:
    """Appends zeros to `count` elements until the next one has this place; returns their new number."""
    zeros = (place - count) & (PLACES - 1)
    clear(taken + 4 * count, zeros)
    return count + zeros


@inner
def _take(taken: int, count: int, begin: int, first: int, last: int, sums: int, width: int) -> int:
    """Appends zeros, and a row's elements first <= element < last, to `count` elements; returns their new number.

    The row's elements begin with number `begin`.
    """
    start, end = max(first, begin), min(last, begin + width)
    count = _filled(taken, count, start - first)
    copy_memory(taken + 4 * count, sums + 4 * (start - begin), 4 * (end - start))
    return count + end - start


@inner
def _take_rows(
    taken: int, count: int, begin: int, first: int, last: int, sums: int, width: int, flags: int, chunk_rows: int
) -> int:
    """Takes all flagged rows of a chunk whose elements begin with number `begin`."""
    row = max(first - begin, 0) // width
    end = min((last - begin + width - 1) // width, chunk_rows)
    while row < end:
        if row & 7 == 0 and row + 8 <= end and load_i64(flags + row) == 0:
            row += 8
        else:
            if load_i8(flags + row) != 0:
                count = _take(taken, count, begin + width * row, first, last, sums + 4 * width * row, width)
            row += 1
    return count


@codelet
def reduced_rows(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Reduces the units lo <= unit < hi."""
    given, summing = ReducedRows.read(parameters), parameters + 8 * ReducedRows.WORDS
    summed = RowSums.read(summing)
    chunk_rows, width, of_chunk = given.chunk_rows, summed.width, given.chunk_rows * summed.width
    reader, sums = reader_of(summing, summed), scratch + RESERVED_SCRATCH
    block = after(sums, summed.chunk_bytes)
    flags = after(block, 8 * summed.reader_words)
    taken = after(flags, (chunk_rows + 63) >> 6 << 6)
    clear(sums, summed.chunk_bytes >> 2)
    clear(flags, (chunk_rows + 63) >> 6 << 4)
    clear(taken, PLACES)
    copy_memory(block, reader, 8 * summed.reader_words)
    put_sums(summing, summed, block, taken)
    for unit in range(lo, hi):
        first = unit * given.unit_elements
        last = min(first + given.unit_elements, given.elements)
        whole = first + (last - first) // TOGETHER * TOGETHER
        count, is_whole = PLACES, True
        for chunk in range(first // of_chunk, (last - 1) // of_chunk + 1):
            begin, end = entries_of(summed, chunk)
            if begin < end:
                sum_rows(summing, summed, sums, begin, end)
                _flag(summed, flags, begin, end, 1)
                row = chunk * of_chunk
                count = _take_rows(taken, count, row, first, whole, sums, width, flags, chunk_rows)
                if row + of_chunk > whole:
                    count = _filled(taken, count, 0) if is_whole else count
                    is_whole = False
                    count = _take_rows(taken, count, row, whole, last, sums, width, flags, chunk_rows)
                _flag(summed, flags, begin, end, 0)
                clear_rows(summed, sums, begin, end)
        count = _filled(taken, count, 0) if is_whole else count
        store_i64(block + 8 * given.grain, count)
        store_i64(block + 8 * given.extent, count)
        store_i64(block + 8 * given.result, word(reader, given.result) + given.pitch * unit)
        call_code(summed.reader, block, 0, 1, scratch)


@frozen
class ReducedRowsWork(HostWork):
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

    def encode(self) -> Encoded:
        """The fields of `reduced_rows`, then the block of the summed rows."""
        summed = self.summed
        reader, width, inner = summed.reader, summed.width, summed.encode()
        operand = reader.operands[self.result]
        assert isinstance(operand, Strided)
        head = ReducedRows(
            elements=summed.tables[0].table.shape.elements,
            unit_elements=reader.grain,
            chunk_rows=summed.chunk_bytes // (4 * width),
            grain=0,
            extent=1,
            result=reader.nest.access_word(self.result),
            pitch=operand.pitch,
        )
        rows = min(self.named, reader.grain // width + 2)
        taken = 4 * (3 * PLACES + rows * (width + PLACES))
        return Encoded.of(
            reduced_rows,
            block(head, inner.parts()),
            summed.scratch(-(-head.chunk_rows // 64) * 64, taken),
            tuple((ReducedRows.WORDS + word, codelet) for word, codelet in inner.calls),
        )
