"""Reductions of row sums, read from named rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.program.buffer import Address
from engine.program.work.base import Footprint, Work
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
