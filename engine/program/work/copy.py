"""Copies of arrays, and transposes."""

from __future__ import annotations

from math import prod

from engine.frozen import frozen
from engine.program.buffer import Address
from engine.program.work.base import Work
from engine.program.work.fused_loop import FusedLoop

TRANSPOSED_COLUMNS = 64
"""Columns of a unit of a transpose: whole cache lines."""


@frozen
class Copy(FusedLoop):
    """A fused loop that only stores what it loads; an `elidable` one copies a whole new value, perhaps needlessly."""

    elidable: bool = False


@frozen
class TransposeWork(Work):
    """Transposes matrices of 4-byte elements: target[column, row] = source[row, column]. Pitches are bytes.

    `matrices` has (size, source stride, target stride) of each dimension that counts the matrices. A unit has
    TRANSPOSED_COLUMNS columns of one matrix.
    """

    source: Address
    target: Address
    rows: int
    columns: int
    source_pitch: int
    target_pitch: int
    matrices: tuple[tuple[int, int, int], ...]

    @property
    def unit_count(self) -> int:
        return prod(size for size, _, _ in self.matrices) * -(-self.columns // TRANSPOSED_COLUMNS)
