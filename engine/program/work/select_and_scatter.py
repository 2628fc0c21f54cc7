"""Work that computes gradients of max pooling: values are added to the elements that windows select."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

from engine.frozen import frozen
from engine.ir.attributes import Window
from engine.ir.pooling import is_apart, spatial_dimensions
from engine.program.buffer import Address
from engine.program.work.base import Array, Work


@frozen
class SelectAndScatterWork(Work):
    """HLO's select-and-scatter of floats, which are added in float32 from `initial` on. A unit has an image.

    `select` is one of `pooling.DIRECTIONS`. Windows are apart, or elements can gather from them.
    """

    operand: Array
    source: Array
    initial: Address
    target: Address
    window: Window
    select: str

    @property
    def vertex(self) -> Hashable:
        """The kind, whether windows overlap, and the comparison."""
        return self.kind, is_apart(self.source.shape, self.window), self.select, self.operand.shape.element_type

    @property
    def unit_count(self) -> int:
        shape = self.operand.shape
        return prod(shape.dimensions[: spatial_dimensions(self.window).start]) if shape.elements else 0
