"""Work that sorts rows, and running sums and the like along rows."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from engine.frozen import frozen
from engine.program.buffer import Address
from engine.program.nest import Comparator
from engine.program.work.base import Array, Work

SCANNED_ROWS = 4
"""Contiguous rows of a unit of a scan."""


@frozen
class SortKey:
    """The operand whose elements are compared, and how: in the total order of floats, -0 comes before 0."""

    operand: int
    descending: bool
    total_order: bool = False


@frozen
class SortWork(Work):
    """HLO's sort along a dimension, always stable; all operands are permuted alike. A unit is a row.

    The first `limit` elements of rows are written to the `targets`. The order is that of a key, or of a comparator.
    """

    sources: tuple[Array, ...]
    targets: tuple[Address, ...]
    dimension: int
    limit: int
    order: SortKey | Comparator

    @property
    def vertex(self) -> Hashable:
        """The kind, and whether it compares by a key."""
        return self.kind, isinstance(self.order, SortKey)

    @property
    def unit_count(self) -> int:
        shape = self.sources[0].shape
        length = shape.dimensions[self.dimension]
        return shape.elements // length if length and self.limit else 0


@frozen
class ScanWork(Work):
    """Running results of an opcode: source [outer, length, inner], target [outer, results, inner] of an element type.

    There may be one result more than elements: then each has only the elements before it. With `backward` it begins
    with the last element. A unit has SCANNED_ROWS rows where `inner` is 1, else `columns` of one outer index.
    """

    vertex_fields: ClassVar = ("opcode", "element_type")

    source: Address
    initial: Address
    target: Address
    outer: int
    length: int
    results: int
    inner: int
    backward: bool
    columns: int
    opcode: str
    element_type: str

    @property
    def unit_count(self) -> int:
        return -(-self.outer // SCANNED_ROWS) if self.inner == 1 else self.outer * -(-self.inner // self.columns)
