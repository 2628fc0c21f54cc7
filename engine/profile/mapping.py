"""Which tiles an array or a piece of work lies on: linear mapping, as poputil maps tensors by default.

Elements, in the order of the loops that make them, go to tiles in equal runs: whole 64-bit vectors, at least 128
bytes per tile, so that small arrays lie on few tiles. Each array starts on the tile after the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from engine.profile.vertices import tables
from engine.program.program import Buffer, Partition
from engine.target import Target

Layout = tuple[int, int]
"""In which order elements go to tiles: (inner, extent) of the dimension that is cut, LINEAR for row-major."""
LINEAR: Layout = (0, 0)


@dataclass(frozen=True, slots=True)
class Spread:
    """Work or elements over tiles: so many on each of `tiles`, the last of which may have fewer."""

    per_tile: int
    tiles: int


def spread(count: int, item_bytes: int, target: Target) -> Spread:
    """`count` elements over the tiles of a target."""
    if count <= 0:
        return Spread(0, 0)
    vector = max(1, target.vector_bytes // item_bytes)
    least = max(1, tables()["mapping"]["least_bytes_per_tile"] // item_bytes)
    even = ceil(ceil(count / target.tiles) / vector) * vector
    per_tile = min(count, max(even, least))
    return Spread(per_tile, -(-count // per_tile))


def spread_over(count: int, tiles: int, item_bytes: int, target: Target) -> Spread:
    """`count` elements over so many tiles, as the plan of a matrix product wants its operand, in whole vectors."""
    if count <= 0:
        return Spread(0, 0)
    vector = max(1, target.vector_bytes // item_bytes)
    per_tile = min(count, ceil(ceil(count / tiles) / vector) * vector)
    return Spread(per_tile, -(-count // per_tile))


def layout_of(buffer: Buffer, partition: Partition | None, units: int) -> Layout | None:
    """The order of a span's elements over tiles; None where every unit may touch everything.

    One unit's span, and a cut of the outermost dimension, are row-major.
    """
    if partition is None:
        return None
    if units <= 1 or partition.inner * partition.extent >= buffer.shape.elements:
        return LINEAR
    return partition.inner, partition.extent


@dataclass(frozen=True, slots=True)
class TileMapping:
    """Bytes on `tiles` neighbours of a ring of tiles: `per_tile` on each, `last_tile` on the last of them.

    The ring are `ring` tiles of the chip from number `origin` on; `start` counts from there.
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
        """Adds the bytes to an array [tiles of the chip], or takes them away."""
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
        """So many bytes on each of the same tiles."""
        return replace(self, per_tile=per_tile, last_tile=per_tile)

    def scaled(self, factor: float) -> TileMapping:
        """That part of the bytes, rounded up."""
        return replace(self, per_tile=ceil(self.per_tile * factor), last_tile=ceil(self.last_tile * factor))


class Placer:
    """Gives arrays their tiles on a ring of them, each from the tile on at which the one before it ended."""

    def __init__(self, target: Target, origin: int = 0) -> None:
        self.target = target
        self.origin = origin
        self.next = 0

    def place(self, elements: int, item_bytes: int, tiles: int | None = None) -> TileMapping:
        """Maps `elements` linearly, or over `tiles` of them."""
        if tiles is None:
            run = spread(elements, item_bytes, self.target)
        else:
            run = spread_over(elements, min(tiles, self.target.tiles), item_bytes, self.target)
        start = self.next
        self.next = (start + run.tiles) % self.target.tiles
        last = elements - run.per_tile * (run.tiles - 1) if run.tiles else 0
        ring = self.target.tiles
        return TileMapping(start, run.tiles, run.per_tile * item_bytes, last * item_bytes, ring, self.origin)

    def work(self, start: int, tiles: int) -> TileMapping:
        """Where work on so many tiles from `start` on is done, without bytes."""
        return TileMapping(start, min(tiles, self.target.tiles), 0, 0, self.target.tiles, self.origin)
