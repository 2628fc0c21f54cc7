"""The tile that may access each cell of a buffer, according to a compute set's spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.debug.cells import cells_of_element
from engine.program.program import Span

NO_TILE = -1
Mask = np.ndarray | bool
"""Some of the cells of a buffer, bool [cells]; or all, or none."""


@dataclass(frozen=True, slots=True)
class SpanElements:
    """A span, with units distributed over tiles.

    `tiles` has the tile of each cell, int16 [cells], NO_TILE where there is none; None lets each `active` tile (one
    that has units) access everything.
    """

    span: Span
    active: tuple[int, ...]
    tiles: np.ndarray | None

    def mask(self, tile: int) -> Mask:
        """The cells that a tile may access."""
        return True if self.tiles is None else self.tiles == tile


def elements_of(span: Span, ranges: tuple[tuple[int, int], ...]) -> SpanElements:
    """The elements of `span` when tile t has the units lo <= unit < hi of ranges[t]."""
    active = tuple(tile for tile, (lo, hi) in enumerate(ranges) if lo < hi)
    return SpanElements(span, active, None if span.partition is None else _tiles(span, ranges))


def _tiles(span: Span, ranges: tuple[tuple[int, int], ...]) -> np.ndarray:
    partition, shape = span.partition, span.buffer.shape
    assert partition is not None
    of_unit = np.full(max([hi for _, hi in ranges] + [-(-partition.extent // partition.grain)]), NO_TILE, np.int16)
    for tile, (lo, hi) in enumerate(ranges):
        of_unit[lo:hi] = tile
    of_index = of_unit[np.arange(partition.extent) // partition.grain]
    of_round = np.repeat(of_index, partition.inner * cells_of_element(shape))
    return np.resize(of_round, shape.elements * cells_of_element(shape))


def mask_of(spans: list[SpanElements], tile: int) -> Mask:
    """The cells that a tile may access by any of these spans."""
    found: Mask = False
    for elements in spans:
        mask = elements.mask(tile)
        if isinstance(mask, bool):
            return True
        found = mask if isinstance(found, bool) else found | mask
    return found
