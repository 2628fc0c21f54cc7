"""A search for missing syncs: accesses of tiles between two syncs, by byte of the arena that they share.

The search follows the step table as it was built, and spans, but not the reasoning by which syncs were placed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.debug.cells import cell_type, position_of
from engine.debug.span_elements import SpanElements
from engine.errors import DebugError
from engine.program.program import Buffer


@dataclass(frozen=True, slots=True)
class TouchedParts:
    """An access to parts of a buffer at an address, by the compute set or branch `who`.

    If `claimed`, any tile may access all of these parts.
    """

    span_element: SpanElements
    address: int
    who: str
    writes: bool
    claimed: bool = False

    @property
    def buffer(self) -> Buffer:
        return self.span_element.span.buffer

    @property
    def end(self) -> int:
        return self.address + self.buffer.shape.bytes

    def tiles(self, begin: int, end: int) -> np.ndarray:
        """The tile of each byte between two addresses, int16; -2 where all active ones may access it, -1 for none."""
        if self.span_element.tiles is None:
            only = self.span_element.active[0] if len(self.span_element.active) == 1 and not self.claimed else -2
            return np.full(end - begin, only, np.int16)
        size = cell_type(self.buffer.shape).itemsize
        first, last = (begin - self.address) // size, -(-(end - self.address) // size)
        start = begin - self.address - first * size
        tiles = np.repeat(self.span_element.tiles[first:last], size)[start : start + end - begin]
        return np.where(tiles == -1, tiles, np.int16(-2)) if self.claimed else tiles

    def is_of_same_tiles(self, other: TouchedParts) -> bool:
        """Whether each tile has the same part of the same buffer in both accesses."""
        same = self.buffer is other.buffer and self.span_element.tiles is other.span_element.tiles
        return same and self.span_element.tiles is not None and not (self.claimed or other.claimed)


class Hazards:
    """The accesses since the last sync."""

    def __init__(self) -> None:
        self._touches: list[TouchedParts] = []

    def sync(self) -> None:
        """Forgets all accesses: the tiles have synchronised."""
        self._touches.clear()

    def sync_claimed(self) -> None:
        """Forgets the accesses of claimed compute sets: all their parts are complete."""
        self._touches = [touch for touch in self._touches if not touch.claimed]

    def check(self, touches: list[TouchedParts]) -> None:
        """Raises DebugError if a tile accesses bytes that another one may still be reading or writing."""
        for new in touches:
            for old in self._touches:
                overlap = old.address < new.end and new.address < old.end
                if overlap and (old.writes or new.writes) and not old.is_of_same_tiles(new):
                    _check_pair(old, new)
        self._touches += touches


def _check_pair(old: TouchedParts, new: TouchedParts) -> None:
    if not old.span_element.active or not new.span_element.active:
        return
    begin, end = max(old.address, new.address), min(old.end, new.end)
    first, second = old.tiles(begin, end), new.tiles(begin, end)
    found = np.flatnonzero((first != -1) & (second != -1) & ((first != second) | (first == -2)))
    if not found.size:
        return
    byte = begin + int(found[0])
    verbs = "writes" if new.writes else "reads", "wrote" if old.writes else "read"
    cell = (byte - new.address) // cell_type(new.buffer.shape).itemsize
    position = (byte - old.address) // cell_type(old.buffer.shape).itemsize
    raise DebugError(
        f"Expected a sync between {old.who} and {new.who}. Received: none, though tile {_tile(second, found[0])} "
        f"{verbs[0]} {position_of(new.buffer.shape, cell)} of {new.buffer.name!r}"
        f" where tile {_tile(first, found[0])} {verbs[1]}"
        f" {position_of(old.buffer.shape, position)} of {old.buffer.name!r}. "
        f"Look at engine/program/syncs.py, and at what both say in their spans."
    )


def _tile(tiles: np.ndarray, at: int) -> str:
    return "any" if tiles[at] == -2 else str(int(tiles[at]))
