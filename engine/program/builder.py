"""Compute sets under construction, and the partitions of the arrays that they write."""

from __future__ import annotations

from engine.frozen import frozen
from engine.ir import Shape
from engine.program.program import Buffer, ComputeSet, Partition


@frozen
class RowBlocks:
    """Arrays whose first dimension other than 1 is `extent` are divided into blocks of `grain` rows."""

    extent: int
    grain: int

    def partition(self, shape: Shape) -> Partition | None:
        """The partition of an array along its rows; None if the array has no such rows."""
        sizes = [size for size in shape.dimensions if size != 1]
        if not sizes or sizes[0] != self.extent or not shape.elements:
            return None
        return Partition(shape.elements // self.extent, self.extent, self.grain)


class ProgramBuilder:
    """A list of compute sets under construction, with the partition in which each array was last written.

    `rows` are the blocks of rows that a loop's arrays have in common.
    """

    def __init__(self, partitions: dict[Buffer, Partition] | None = None, rows: RowBlocks | None = None) -> None:
        self.compute_sets: list[ComputeSet] = []
        self.partitions = {} if partitions is None else partitions
        self.rows = rows

    def emit(self, compute_set: ComputeSet) -> None:
        """Adds a compute set, and notes the partitions that it writes."""
        self.compute_sets.append(compute_set)
        self.note(compute_set)

    def note(self, compute_set: ComputeSet) -> None:
        """Notes the partitions that a compute set writes, where it has several units."""
        for span in compute_set.writes:
            if span.partition is not None and compute_set.units > 1:
                self.partitions[span.buffer] = span.partition
            else:
                self.partitions.pop(span.buffer, None)
