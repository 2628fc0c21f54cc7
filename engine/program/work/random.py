"""Work that generates random bits, and advances the states of generators."""

from __future__ import annotations

from typing import ClassVar

from engine.frozen import frozen
from engine.ir.shape import Shape
from engine.ops.generators import GeneratorState
from engine.program.buffer import Address
from engine.program.work.base import MOST_UNITS, Array, Work

UNIT_COUNTERS = 1024
"""The fewest counters of one unit: computing them takes as long as a barrier."""


@frozen
class RandomBitsWork(Work):
    """Bits from the counters that follow a state; with `is_philox` from Philox, else from ThreeFry."""

    vertex_fields: ClassVar = ("is_philox",)

    state: Array
    bits: Array
    is_philox: bool

    @property
    def counters(self) -> int:
        """The number of counters that are used."""
        return (philox_counters if self.is_philox else three_fry_counters)(self.bits.shape)

    @property
    def unit_counters(self) -> int:
        """The number of counters of one unit."""
        return max(UNIT_COUNTERS, -(-self.counters // MOST_UNITS))

    @property
    def unit_count(self) -> int:
        return -(-self.counters // self.unit_counters)


@frozen
class NextStateWork(Work):
    """Writes the state `distance` counters after the `source`."""

    source: Array
    target: Address
    distance: int


@frozen
class DrawWork(Work):
    """Copies a hidden state, and advances it by `distance` counters."""

    state: GeneratorState
    target: Address
    distance: int


def philox_counters(bits: Shape) -> int:
    """The number of counters that Philox uses for these bits."""
    return -(-bits.elements * max(4, bits.dtype.itemsize) // 16)


def three_fry_dimension(bits: Shape) -> int:
    """The dimension along which the two words of a counter are adjacent: the first of even size, else the longest."""
    even = [d for d, size in enumerate(bits.dimensions) if size % 2 == 0]
    return even[0] if even else max(range(bits.rank), key=lambda d: bits.dimensions[d], default=0)


def three_fry_counters(bits: Shape) -> int:
    """The number of counters that ThreeFry uses for these bits."""
    if bits.dtype.itemsize == 8 or not bits.rank:
        return bits.elements
    size = bits.dimensions[three_fry_dimension(bits)]
    return bits.elements // size * -(-size // 2) if size else 0
