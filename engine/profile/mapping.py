"""Which tiles an array or a piece of work lies on: linear mapping, as poputil maps tensors by default.

Elements, in the order of the loops that make them, go to tiles in equal runs: whole 64-bit vectors, at least 128
bytes per tile, so that small arrays lie on few tiles. Each array starts on the tile after the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass
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


def layout_of(buffer: Buffer, partition: Partition | None, units: int) -> Layout | None:
    """The order of a span's elements over tiles; None where every unit may touch everything.

    One unit's span, and a cut of the outermost dimension, are row-major.
    """
    if partition is None:
        return None
    if units <= 1 or partition.inner * partition.extent >= buffer.shape.elements:
        return LINEAR
    return partition.inner, partition.extent


class TileLoad:
    """Bytes on each tile, as arrays come and go."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.tile_bytes = np.zeros(target.tiles, np.int64)
        self._next = 0
        self._placed: dict[Buffer, int] = {}

    def add(self, buffer: Buffer) -> None:
        """Maps an array, from the tile on at which the one before it ended."""
        run = self._run(buffer)
        self._placed[buffer] = self._next
        self._put(buffer, self._next, 1)
        self._next = (self._next + run.tiles) % self.target.tiles

    def remove(self, buffer: Buffer) -> None:
        """Takes the array's bytes away again."""
        self._put(buffer, self._placed.pop(buffer), -1)

    def _run(self, buffer: Buffer) -> Spread:
        return spread(buffer.shape.elements, buffer.shape.dtype.itemsize, self.target)

    def _put(self, buffer: Buffer, start: int, sign: int) -> None:
        run, item = self._run(buffer), buffer.shape.dtype.itemsize
        if run.tiles == 0:
            return
        tiles = np.arange(start, start + run.tiles) % self.target.tiles
        self.tile_bytes[tiles] += sign * run.per_tile * item
        self.tile_bytes[tiles[-1]] -= sign * (run.per_tile * run.tiles - buffer.shape.elements) * item
