"""Codelets and parameter blocks of sums of rows that loops read, and of their reductions."""

from __future__ import annotations

from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchSpace, space_of
from engine.codelets.rows.reduced_rows import LANES, ReducedRows, reduced_rows
from engine.codelets.rows.row_sums import RowSource, RowSums, SortRows, row_sums, sort_rows
from engine.host.encoded import Encoded
from engine.host.kernels.loops import encoded_loop
from engine.ir.strides import index_signed
from engine.program.work.fused_loop import Strided
from engine.program.work.reduced_rows import ReducedRowsWork
from engine.program.work.row_sums import RowSort, SummedRows


def scratch_with(summed: SummedRows, *more: int) -> ScratchSpace:
    """Make areas of scratch for the sums, for the reader's parameters, and of each number of bytes in `more`."""
    return space_of(summed.chunk_bytes * len(summed.tables), 8 * len(encoded_loop(summed.reader).words), *more)


def encoded_row_sums(summed: SummedRows) -> Encoded:
    """The fields of `row_sums`, then the reader's block."""
    reader = encoded_loop(summed.reader)
    head = RowSums(
        ends=summed.ends,
        entries=summed.entries,
        sources=len(summed.tables),
        width=summed.width,
        chunk_bytes=summed.chunk_bytes,
        reader_words=len(reader.words),
    )
    sources = [
        RowSource(
            updates=each.updates,
            repeat=each.repeat,
            outer=each.outer,
            inner=each.inner,
            reader_sums=reader.words_of(each.table)[0],
        )
        for each in summed.tables
    ]
    return Encoded.of(
        row_sums,
        block(head, sources, reader.parts([each.table for each in summed.tables])),
        scratch_with(summed),
        ((RowSums.READER, reader.codelet),),
    )


def encoded_reduced_rows(work: ReducedRowsWork) -> Encoded:
    """The fields of `reduced_rows`, then the block of the summed rows."""
    summed = work.summed
    reader, width, inner = summed.reader, summed.width, encoded_row_sums(summed)
    operand = reader.operands[work.result]
    assert isinstance(operand, Strided)
    head = ReducedRows(
        elements=summed.tables[0].table.shape.elements,
        unit_elements=reader.grain,
        chunk_rows=summed.chunk_bytes // (4 * width),
        grain=0,
        extent=1,
        result=reader.nest.access_word(work.result),
        pitch=operand.pitch,
    )
    rows = min(work.named, reader.grain // width + 2)
    taken = 4 * (LANES + rows * (width + LANES))
    return Encoded.of(
        reduced_rows,
        block(head, inner.parts()),
        scratch_with(summed, -(-head.chunk_rows // 64) * 64, taken),
        tuple((ReducedRows.WORDS + word, codelet) for word, codelet in inner.calls),
    )


def encoded_row_sort(work: RowSort) -> Encoded:
    """The fields of `sort_rows`."""
    ids = work.ids.shape
    parameters = SortRows(
        ids=work.ids.address,
        index_bytes=ids.dtype.itemsize,
        index_signed=index_signed(ids),
        named=work.entries.shape.elements,
        rows=work.rows,
        shift=work.shift,
        chunks=work.ends.shape.elements,
        ends=work.ends.address,
        entries=work.entries.address,
    )
    return Encoded.of(sort_rows, block(parameters))
