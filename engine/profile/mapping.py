"""Tiles of arrays and of work: linear mapping, as poputil maps tensors by default.

Elements go to tiles in equal runs, in the order of the loops that compute them. A run is of whole 64-bit vectors and at
least 128 bytes, so small arrays are on few tiles. Each array starts on the tile after the last one of the array before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil

import numpy as np

from engine.frozen import frozen
from engine.profile.vertices import tables
from engine.target import Target


@frozen
class Spread:
    """Distribution of work or elements: `per_tile` on each of `tiles`, fewer on the last."""

    per_tile: int
    tiles: int


def spread(count: int, item_bytes: int, target: Target, tiles: int | None = None) -> Spread:
    """Linear mapping of `count` elements over the tiles of a target, in whole vectors.

    Over at most `tiles` tiles, as a matrix product has its operand, a tile may have less than the least bytes.
    """
    if count <= 0:
        return Spread(0, 0)
    vector = max(1, target.vector_bytes // item_bytes)
    least = 1 if tiles else max(1, tables()["mapping"]["least_bytes_per_tile"] // item_bytes)
    even = ceil(ceil(count / (tiles or target.tiles)) / vector) * vector
    per_tile = min(count, max(even, least))
    return Spread(per_tile, -(-count // per_tile))


def runs(count: int, even: Spread, periods: Iterable[int]) -> list[Spread]:
    """The even mapping, and those with one period on each of fewer tiles: whole rows, of which no tile needs parts."""
    longer = sorted(period for period in set(periods) if even.per_tile < period <= count)
    return [even, *(Spread(period, -(-count // period)) for period in longer)]


def spread_evenly(count: int, target: Target) -> Spread:
    """Distribute `count` rows evenly over the tiles of a target."""
    per_tile = -(-count // target.tiles)
    return Spread(per_tile, -(-count // max(1, per_tile)))


@frozen
class TileMapping:
    """Bytes on `tiles` consecutive tiles of a ring: `per_tile` on each, `last_tile` on the last of them.

    The ring consists of `ring` tiles of the chip from number `origin` on; `start` counts from `origin`.
    """

    start: int
    tiles: int
    per_tile: int
    last_tile: int
    ring: int
    origin: int = 0

    @property
    def bytes(self) -> int:
        return self.per_tile * (self.tiles - 1) + self.last_tile if self.tiles else 0

    def add_to(self, tile_bytes: np.ndarray, sign: int = 1) -> None:
        """Add the bytes to an int64 array [tiles of the chip], or subtract them with `sign` -1."""
        if not self.tiles:
            return
        ring = tile_bytes[self.origin : self.origin + self.ring]
        ring[self.start : self.start + self.tiles] += sign * self.per_tile
        around = self.start + self.tiles - self.ring
        if around > 0:
            ring[:around] += sign * self.per_tile
        ring[(self.start + self.tiles - 1) % self.ring] -= sign * (self.per_tile - self.last_tile)

    def numbers(self) -> np.ndarray:
        """The numbers of the tiles, int64 [self.tiles]."""
        return self.origin + np.arange(self.start, self.start + self.tiles) % self.ring

    def sized(self, per_tile: int) -> TileMapping:
        """Return a mapping of `per_tile` bytes to each of these tiles."""
        return replace(self, per_tile=per_tile, last_tile=per_tile)

    def scaled(self, factor: float) -> TileMapping:
        """Return a mapping of `factor` times as many bytes, rounded up."""
        return replace(self, per_tile=ceil(self.per_tile * factor), last_tile=ceil(self.last_tile * factor))


class Placer:
    """A ring of tiles, in which each array starts on the tile after the last one of the array before."""

    def __init__(self, target: Target, origin: int = 0) -> None:
        self.target = target
        self.origin = origin
        self.next = 0

    def place(self, elements: int, item_bytes: int, tiles: int | None = None) -> TileMapping:
        """Map `elements` linearly, or over at most `tiles` tiles."""
        run = spread(elements, item_bytes, self.target, tiles and min(tiles, self.target.tiles))
        start = self.next
        self.next = (start + run.tiles) % self.target.tiles
        last = elements - run.per_tile * (run.tiles - 1) if run.tiles else 0
        ring = self.target.tiles
        return TileMapping(start, run.tiles, run.per_tile * item_bytes, last * item_bytes, ring, self.origin)

    def work(self, start: int, tiles: int) -> TileMapping:
        """Map work, which has no bytes, to `tiles` tiles from `start` on."""
        return TileMapping(start, min(tiles, self.target.tiles), 0, 0, self.target.tiles, self.origin)
