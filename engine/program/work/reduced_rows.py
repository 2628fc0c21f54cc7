"""Reductions of row sums, read from named rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.codelets.language.record import block
from engine.codelets.rows.reduced_rows import LANES, ReducedRows, reduced_rows
from engine.program.buffer import Address
from engine.program.work.base import Encoded, Footprint, Work
from engine.program.work.fused_loop import Strided
from engine.program.work.row_sums import SummedRows


@dataclass(frozen=True, slots=True)
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
        taken = 4 * (LANES + rows * (width + LANES))
        return Encoded.of(
            reduced_rows,
            block(head, inner.parts()),
            summed.scratch_with(-(-head.chunk_rows // 64) * 64, taken),
            tuple((ReducedRows.WORDS + word, codelet) for word, codelet in inner.calls),
        )
