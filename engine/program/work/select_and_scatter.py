"""Work that adds or otherwise scatters numbers to the elements that windows select, as gradients of pooling do."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from math import prod

from engine.ir.attributes import Window
from engine.ir.shape import Shape
from engine.program.buffer import Address
from engine.program.nest import Combiner, Comparator
from engine.program.pooling import gathers_pools, is_apart, spatial_dimensions
from engine.program.work.base import Array, Work

DIRECTIONS = ("GE", "GT", "LE", "LT", "UGE")
"""Comparisons that keep the element selected before: HLO's directions, and UGE, which is "not LT" of floats."""


class Scattering(Enum):
    """The way in which windows and elements are related."""

    APART = "windows that do not overlap write their elements"
    GATHERED = "elements gather from the windows that contain them"
    SCATTERED = "windows add to elements"
    GENERAL = "windows call code for each pair of elements"


@dataclass(frozen=True, slots=True)
class SelectAndScatterWork(Work):
    """HLO's select-and-scatter. A unit has an image, or all of them.

    `select` is one of DIRECTIONS, for floats that are added in the source's type, f32 or f64, from `initial` on; or a
    comparator, for any element type and any way to `combine`.
    """

    operand: Array
    source: Array
    initial: Address
    target: Address
    window: Window
    select: str | Comparator
    combine: str | Combiner = "add"

    @property
    def scattering(self) -> Scattering:
        """The way in which windows and elements are related."""
        if isinstance(self.select, Comparator):
            return Scattering.GENERAL
        return scattering_of(self.source.shape, self.window)

    @property
    def vertex(self) -> Hashable:
        """The kind, the way of scattering, and the bodies."""
        return self.kind, self.scattering, self.select, self.combine, self.operand.shape.element_type

    @property
    def unit_count(self) -> int:
        sizes, window, scattering = self.operand.shape.dimensions, self.window, self.scattering
        if not self.operand.shape.elements:
            return 0
        if scattering in (Scattering.APART, Scattering.GATHERED):
            return prod(sizes[: spatial_dimensions(window).start])
        if scattering is Scattering.GENERAL:
            return sizes[0] if len(sizes) > 1 and window[0].is_trivial else 1
        spatial = spatial_dimensions(window)
        return next((sizes[d] for d in range(spatial.stop) if window[d].is_trivial and sizes[d] > 1), 1)


def scattering_of(source: Shape, window: Window) -> Scattering:
    """The way in which windows that compare floats, and add the `source`, are related to elements."""
    if source.element_type != "f32":
        return Scattering.SCATTERED
    if is_apart(window):
        return Scattering.APART
    return Scattering.GATHERED if gathers_pools(source, window) else Scattering.SCATTERED
