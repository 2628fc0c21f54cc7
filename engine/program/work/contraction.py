"""Products: C[row, column] = sum over k of A[row, k] * B[k, column], for each batch, with tables of byte offsets."""

from __future__ import annotations

from collections.abc import Iterator

from engine.frozen import frozen
from engine.ir.shape import Shape
from engine.program.buffer import Address
from engine.program.work.base import Footprint, Work, addresses_in
from engine.program.work.offsets import Offsets, rows_together, run_of


@frozen
class Grid:
    """Sizes of one unit of a contraction: rows, columns and k."""

    rows: int
    columns: int
    k: int


@frozen
class Contraction(Work):
    """C[row_c[m] + n * size] = sum over k of A[row_a[m] + k_a[k]] * B[k_b[k] + n * stride_b], n below `columns`.

    The offsets of a batch are added to the three addresses. A and B have elements of `operand_type`, C of
    `result_type`. Where k is split, part s writes its partial sums s * `partial_pitch` bytes further on. With `bf16x3`
    each float32 is split into three bfloat16 values, which matrix registers multiply. With `depthwise` there is one
    column, batches are neighbours in all three arrays, and a unit has the rows of all of them. With `panels`,
    `PanelPacking` has packed B; at `parts_b` it has stored what B is split into. With `rounds_b` B is float32 in
    memory, rounded to f16 where it is packed. Units prefetch their rows of `ahead`, arrays in as many equal parts as C
    has rows that are read after it. Where each unit has a batch of its own, it prefetches those operands of the next
    unit that `next_unit`, a sum of NextUnit, names.
    """

    a: Address
    b: Address
    c: Address
    row_a: Offsets
    row_c: Offsets
    k_a: Offsets
    k_b: Offsets
    batch_a: Offsets
    batch_b: Offsets
    batch_c: Offsets
    columns: int
    stride_b: int
    grid: Grid
    operand_type: str
    result_type: str
    partial_pitch: int = 0
    bf16x3: bool = False
    depthwise: bool = False
    panels: bool = False
    parts_b: Address | None = None
    rounds_b: bool = False
    ahead: tuple[Address, ...] = ()
    next_unit: int = 0

    @property
    def addresses(self) -> tuple[Address, ...]:
        return self.a, self.b, self.c, *addresses_in(self.parts_b)

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Batches, rows, columns and k."""
        return len(self.batch_a), len(self.row_a), self.columns, len(self.k_a)

    @property
    def splits(self) -> int:
        """Number of partial sums of each element of C."""
        return max(1, -(-len(self.k_a) // self.grid.k))

    @property
    def unit_count(self) -> int:
        """Number of units; 0 if C has no elements."""
        batches, rows, columns, _ = self.size
        parts = 1 if self.depthwise else batches
        return parts * -(-rows // self.grid.rows) * -(-columns // self.grid.columns) * self.splits

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of each array."""
        wide = Shape(self.result_type).dtype.itemsize
        pitches = [self.partial_pitch * k for k in (0, self.splits - 1)]
        arrays: tuple[tuple[Address, tuple[Offsets, ...], list[int], int], ...] = (
            (self.a, (self.row_a, self.k_a, self.batch_a), [0], self.item_bytes),
            (self.b, (self.k_b, self.batch_b), [0, self.stride_b * (self.columns - 1)], self.bytes_of_b),
            (self.c, (self.row_c, self.batch_c), pitches, wide * self.columns),
        )
        for address, offsets, more, size in arrays:
            if all(len(each) for each in offsets):
                begin = sum(int(each.table.min()) for each in offsets) + min(more)
                end = sum(int(each.table.max()) for each in offsets) + max(more)
                yield Footprint(address, begin, end + size, address is self.c)

    @property
    def is_float32(self) -> bool:
        """Whether the product multiplies float32 values as they are: not split, not depthwise."""
        return self.operand_type == self.result_type == "f32" and not (self.bf16x3 or self.depthwise)

    @property
    def run_a(self) -> int:
        """Length of the contiguous runs of elements of A along k."""
        return run_of(self.k_a.table, self.item_bytes)

    @property
    def transposed(self) -> str:
        """The operands, of "a" and "b", whose elements along k are not contiguous."""
        tables = {"a": (self.k_a.table, self.item_bytes), "b": (self.k_b.table, self.bytes_of_b)}
        return "".join(name for name, (table, item) in tables.items() if len(table) > 1 and table[1] - table[0] != item)

    @property
    def has_pairs(self) -> bool:
        """Whether bf16 values of A are stored as pairs along k, or can be transposed to pairs.

        Values that windows gather cannot.
        """
        return (self.run_a % 2 == 0 and len(self.k_a) % 2 == 0) or rows_together(self.row_a.table, self.item_bytes) != 0

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of A."""
        return Shape(self.operand_type).dtype.itemsize

    @property
    def bytes_of_b(self) -> int:
        """Bytes of an element of B in memory."""
        return 4 if self.rounds_b else self.item_bytes
