"""Liveness on each tile: each array is live from its first compute set to its last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from engine.frozen import frozen
from engine.profile.categories import CATEGORIES
from engine.profile.mapping import TileMapping
from engine.program.program import Buffer


@frozen
class LiveTensor:
    """An array on a chip: `bytes` on all tiles, live from compute set `first` to `last`, both included.

    `name` is readable. `layer` is the Keras layer in the name, or the optimizer, or the loss, or "". An `always_live`
    array is live from the first compute set to the last. `category` is one of CATEGORIES. `role` is that of a variable,
    such as "weight" or "statistic" (engine.program.buffer.Role), if the front end has recorded one.
    """

    name: str
    layer: str
    shape: str
    bytes: int
    first: int
    last: int
    always_live: bool
    category: str
    role: str = ""


@frozen
class LiveRange:
    """Bytes on tiles from compute set `first` to `last`, both included; always live if `first` is below 0.

    `buffer` is the array, None for received bytes of an exchange.
    """

    placement: TileMapping
    first: int
    last: int
    category: str
    buffer: Buffer | None = None


@dataclass(frozen=True, eq=False)
class TileMemory:
    """Bytes on each tile, int64 arrays [tiles].

    `peak_bytes` is the maximum of each tile over the step, first reached at compute set `peak_at`. All are computed
    from `blocks`, one for each LiveTensor, and from the `fixed` bytes of code and vertex state.
    """

    always_live_bytes: np.ndarray
    peak_bytes: np.ndarray
    peak_at: np.ndarray
    blocks: tuple[LiveRange, ...] = field(default=(), repr=False)
    fixed: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    @cached_property
    def categories(self) -> dict[str, np.ndarray]:
        """The bytes on each tile at its own peak, by category; they add up to `peak_bytes`."""
        none = np.zeros(len(self.peak_at), np.int64)
        categories = {name: np.array(self.fixed.get(name, none), np.int64) for name in CATEGORIES}
        for block in self.blocks:
            where = block.placement.numbers()
            if not len(where):
                continue
            sizes = np.full(len(where), block.placement.per_tile, np.int64)
            sizes[-1] = block.placement.last_tile
            if block.first >= 0:
                at = self.peak_at[where]
                sizes *= (block.first <= at) & (at <= block.last)
            categories[block.category][where] += sizes
        return categories

    @property
    def fullest(self) -> int:
        """The number of the tile with the highest peak."""
        return int(self.peak_bytes.argmax())


def tile_memory(blocks: Sequence[LiveRange], fixed: Mapping[str, np.ndarray], compute_sets: int) -> TileMemory:
    """Memory of the tiles, from live ranges and from the `fixed` bytes [tiles] of code and state, by category."""
    always, peak, peak_at = follow(blocks, fixed, compute_sets)
    return TileMemory(always, peak, peak_at, tuple(blocks), dict(fixed))


def follow(
    blocks: Sequence[LiveRange], fixed: Mapping[str, np.ndarray], compute_sets: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Always live bytes (int64), peak bytes (int64) and the compute set of each peak (int32), each [tiles]."""
    always = np.zeros(len(next(iter(fixed.values()))), np.int64)
    for size in fixed.values():
        always += size
    starting: list[list[TileMapping]] = [[] for _ in range(max(1, compute_sets))]
    ending: list[list[TileMapping]] = [[] for _ in starting]
    for block in blocks:
        if block.first < 0:
            block.placement.add_to(always)
        else:
            starting[block.first].append(block.placement)
            ending[min(block.last, len(ending) - 1)].append(block.placement)
    now, peak, peak_at = always.copy(), always.copy(), np.zeros(len(always), np.int32)
    for at, begun in enumerate(starting):
        for placement in begun:
            placement.add_to(now)
        if begun:
            peak_at[now > peak] = at
            np.maximum(peak, now, out=peak)
        for placement in ending[at]:
            placement.add_to(now, -1)
    return always, peak, peak_at
