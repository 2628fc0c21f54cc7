"""Fused elementwise work and reductions: a loop nest with its extents, and the arrays as its loops access them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from math import prod
from typing import ClassVar

from engine.frozen import frozen
from engine.ir.attributes import Window
from engine.ir.shape import Shape
from engine.program.buffer import Address
from engine.program.nest import Nest
from engine.program.work.base import Addressed, Footprint, Work


@frozen
class Strided(Addressed):
    """An array with bytes between iterations of each loop, and `pitch` bytes between the partial results of units."""

    address: Address
    strides: tuple[int, ...]
    pitch: int = 0


@frozen
class Count(Addressed):
    """The values of an Index node: the start, and the step along each loop."""

    start: int
    strides: tuple[int, ...]


@frozen
class FusedLoop(Work):
    """A nest run over `extents`, whose units have slices of `grain` of its loop number `nest.partition`.

    `operands` are the arrays and counts of the nest's accesses, by number. `record` is where a nest that checks for
    exceptions counts them.
    """

    is_plain: ClassVar[bool] = True

    nest: Nest
    extents: tuple[int, ...]
    grain: int
    operands: tuple[Strided | Count, ...]
    record: Address | None = None

    @property
    def vertex(self) -> Hashable:
        """The nest: equal ones share machine code."""
        return self.nest

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the arrays, and of the record of exceptions."""
        found = [operand.address for operand in self.operands if isinstance(operand, Strided)]
        return (*found, *(() if self.record is None else (self.record,)))

    @property
    def points(self) -> int:
        """Number of executions of the innermost body."""
        return prod(self.extents)

    @property
    def unit_count(self) -> int:
        """Number of slices of the partitioned loop."""
        return -(-self.extents[self.nest.partition] // self.grain)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of each array."""
        written = self.written
        for number, operand in enumerate(self.operands):
            if isinstance(operand, Strided):
                last = [s * (e - 1) for s, e in zip(operand.strides, self.extents, strict=True)]
                last.append(operand.pitch * (self.unit_count - 1))
                item = Shape(self.nest.accesses[number].element_type).dtype.itemsize
                low, high = sum(min(0, each) for each in last), sum(max(0, each) for each in last)
                yield Footprint(operand.address, low, high + item, number in written)

    @property
    def written(self) -> frozenset[int]:
        """The numbers of the operands that are written."""
        nest = self.nest
        return frozenset(s.access for s in nest.stores) | {a for r in nest.reductions for a in r.accesses}

    def operands_at(self, buffer: object) -> list[Strided]:
        """The operands in a buffer."""
        return [o for o in self.operands if isinstance(o, Strided) and o.address.buffer is buffer]


@frozen
class WindowLoop(FusedLoop):
    """A fused loop that combines the elements of each window of operand 0, beginning with operand 1, an initial value.

    Operand 0 has all elements of all windows, also those that padding has added. `windows` counts the windows along
    each of its dimensions, `strides` are its byte strides. With `is_neutral`, combining with the initial value changes
    nothing, and padding may be left out.
    """

    window: Window = ()
    windows: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    is_neutral: bool = False
