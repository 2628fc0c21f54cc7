"""Work that moves parts of arrays to or from places which indices name: gather, scatter, dynamic slices."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from math import prod

from engine.errors import InternalError
from engine.frozen import frozen
from engine.ir.attributes import GatherDimensionNumbers, ScatterDimensionNumbers
from engine.ir.shape import Shape
from engine.ir.strides import byte_strides, merge
from engine.program.buffer import Address
from engine.program.nest import Combiner
from engine.program.work.base import MOST_UNITS, Array, Work

LINE = 64
"""Bytes of a cache line: units that share one would slow each other down."""
SMALL_SCATTER = 4096
"""Bytes of an operand that is one unit."""


@frozen
class GatherWork(Work):
    """HLO's gather at clamped start indices. A unit has one index vector."""

    operand: Array
    indices: Array
    target: Array
    numbers: GatherDimensionNumbers
    slice_sizes: tuple[int, ...]

    @property
    def unit_count(self) -> int:
        sizes = self.indices.shape.dimensions
        vectors = prod(size for d, size in enumerate(sizes) if d != self.numbers.index_vector_dim)
        return vectors if self.target.shape.elements else 0


@frozen
class ScatterWork(Work):
    """HLO's scatter: updates are combined into a copy of the operand in the order of their indices.

    Nothing is copied if `target` is the operand's address. Of several
    operands these are the first one's; `others` are the targets and updates of each.
    """

    operand: Array
    indices: Array
    updates: Array
    target: Address
    numbers: ScatterDimensionNumbers
    combine: Combiner
    others: tuple[Address, ...] = ()

    @property
    def vertex(self) -> Hashable:
        """The kind, and how elements are combined."""
        return self.kind, self.combine.opcode or self.combine

    @property
    def plan(self) -> ScatterPlan:
        """The division into units, for an operand with elements. Raises InternalError for numbers of other shapes."""
        return ScatterPlan(self.operand.shape, self.updates.shape, self.numbers)

    @property
    def unit_count(self) -> int:
        return self.plan.units if self.operand.shape.elements else 0


class ScatterPlan:
    """The dimension of an operand that units partition, and the sizes and strides of updates along all dimensions."""

    def __init__(self, operand: Shape, updates: Shape, numbers: ScatterDimensionNumbers) -> None:
        if not operand.rank:  # one row of one element
            operand, numbers = operand.with_dimensions((1,)), replace(numbers, inserted_window_dims=(0,))
        skipped = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
        window = [d for d in range(operand.rank) if d not in skipped]
        if len(window) != len(numbers.update_window_dims):
            raise InternalError(f"Expected {len(window)} update_window_dims. Received: {numbers.update_window_dims}.")
        self.operand, self.numbers = operand, numbers
        self.strides = byte_strides(operand)
        update_strides = byte_strides(updates)
        pairs = dict(zip(window, sorted(numbers.update_window_dims), strict=True))
        self.sizes = [updates.dimensions[pairs[d]] if d in pairs else 1 for d in range(operand.rank)]
        self.update_strides = [update_strides[pairs[d]] if d in pairs else 0 for d in range(operand.rank)]
        self.position_strides = [s for d, s in enumerate(update_strides) if d not in numbers.update_window_dims]
        self.cut = self._choose_cut(numbers)

    def _choose_cut(self, numbers: ScatterDimensionNumbers) -> int:
        """The largest window dimension that no index addresses, over which updates are even; else the largest one."""
        dimensions = self.operand.dimensions
        mapped = {*numbers.scatter_dims_to_operand_dims, *numbers.input_batching_dims}
        whole = [d for d in range(len(dimensions)) if d not in mapped and dimensions[d] * self.strides[d] >= LINE]
        best = max(whole, key=lambda d: dimensions[d], default=None)
        if best is not None and dimensions[best] * self.strides[best] >= 2 * LINE:
            return best
        return max(range(len(dimensions)), key=lambda d: dimensions[d])

    def chunk(self) -> int:
        """Coordinates of one unit along the cut: at least a cache line, all if the operand is small."""
        size, stride = self.operand.dimensions[self.cut], self.strides[self.cut]
        if self.operand.bytes <= SMALL_SCATTER:
            return size
        return max(-(-size // MOST_UNITS), -(-LINE // stride))

    @property
    def units(self) -> int:
        """The number of units."""
        return -(-self.operand.dimensions[self.cut] // self.chunk())

    def run(self) -> tuple[int, bool, list[tuple[int, ...]]]:
        """Elements of the contiguous run below the cut, whether the cut continues it, other dimensions."""
        itemsize = self.operand.dtype.itemsize
        below = merge([self._entry(d) for d in range(self.cut + 1, self.operand.rank)])
        above = merge([self._entry(d) for d in range(self.cut)])
        length = 1
        if below and below[-1][1:] == (itemsize, itemsize):
            length = below.pop()[0]
        continues = not below and self.strides[self.cut] == self.update_strides[self.cut] == length * itemsize
        return length, continues, above + below

    def _entry(self, d: int) -> tuple[int, int, int]:
        return self.sizes[d], self.strides[d], self.update_strides[d]


@frozen
class FirstOfEqualWork(Work):
    """The first position of an id equal to each id, int32. It is one unit."""

    ids: Array
    target: Address


@frozen
class Counted:
    """A start that is known for each iteration of a loop: its first value, and its growth per iteration."""

    first: int
    growth: int


@frozen
class SliceWork(Work):
    """Copies a box of an array, or into it.

    `starts` has one start for each dimension of the array, or none: the box is then at the array's address. A Counted
    one depends on the count of the loop number `counter`. A contiguous box has units of `unit_bytes`, or is one unit if
    that is 0.
    """

    array: Array
    box: Array
    starts: tuple[Counted | Array, ...]
    into_array: bool
    unit_bytes: int = 0
    counter: int = 0

    @property
    def runs(self) -> tuple[int, list[tuple[int, ...]]]:
        """Bytes of a contiguous run, and (size, stride in the array, stride in the box) of the loops over runs."""
        box, item = self.box.shape, self.box.shape.dtype.itemsize
        runs = merge(list(zip(box.dimensions, byte_strides(self.array.shape), byte_strides(box), strict=True)))
        return (item * runs.pop()[0] if runs and runs[-1][1:] == (item, item) else item), runs

    @property
    def unit_count(self) -> int:
        run_bytes, runs = self.runs
        if not self.box.shape.elements:
            return 0
        return prod(run[0] for run in runs) if runs else -(-run_bytes // (self.unit_bytes or run_bytes))

    @property
    def is_one_run(self) -> bool:
        """Whether the box is a single run of bytes at the array's address, which no start moves."""
        return not self.starts and not self.runs[1]
