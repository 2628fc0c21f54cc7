"""Work that transforms lines of an array to their spectra, or back."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

from engine.frozen import frozen
from engine.program.buffer import Address
from engine.program.fourier_plan import FourierPlan
from engine.program.work.base import MOST_UNITS, Array, Work

LONG_LINE = 1 << 14
"""The longest transform for which a quarter of a vector's lanes suffices; longer ones leave the cache (by trial)."""


@frozen
class FourierWork(Work):
    """HLO's fft along one dimension, by a plan. A unit has some groups of `width` neighbouring lines.

    `ends` are the kinds of the lines before and after. `table` has the plan's numbers.
    """

    source: Array
    target: Array
    table: Address
    dimension: int
    ends: tuple[int, int]
    inverse: bool
    plan: FourierPlan
    width: int

    @property
    def vertex(self) -> Hashable:
        """The kind, the element types, and the lines transformed together."""
        return self.kind, self.element_type, self.plan.computed, self.width

    @property
    def element_type(self) -> str:
        """The type of the spectrum's numbers."""
        return "c64" if self.source.shape.element_type in ("c64", "f32") else "c128"

    @property
    def lines(self) -> tuple[int, int]:
        """Rows of lines, and neighbouring lines of a row."""
        sizes = self.source.shape.dimensions
        before, after = prod(sizes[: self.dimension]), prod(sizes[self.dimension + 1 :])
        return (1, before) if after == 1 else (before, after)

    @property
    def groups_of_row(self) -> int:
        """Groups of lines in a row of lines."""
        return -(-self.lines[1] // self.width)

    @property
    def groups(self) -> int:
        """All groups of lines."""
        return self.lines[0] * self.groups_of_row

    @property
    def groups_in_unit(self) -> int:
        """Groups of lines of one unit."""
        return -(-self.groups // MOST_UNITS)

    @property
    def unit_count(self) -> int:
        return -(-self.groups // self.groups_in_unit)


def width_of(plan: FourierPlan, neighbours: int, lanes: int) -> int:
    """The lines transformed together in vectors of `lanes` f32, with `neighbours` side by side.

    Few neighbours are transformed one by one: a vector would be mostly idle, and need more scratch.
    """
    most = lanes if plan.computed == "f32" else lanes // 2
    fills_lanes = 2 * neighbours >= most or (4 * neighbours >= most and plan.transformed <= LONG_LINE)
    return most if fills_lanes else 1
