"""Bytes that are exchanged before a compute set: between tiles, and with the host."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.debug.uses import Use

OFF_CHIP = ("constant", "queue")
"""Kinds of buffers without exchange: all tiles have a copy of constants from the start; rings are in host memory."""


def exchanged(uses: Iterable[Use], tiles: int) -> np.ndarray:
    """Bytes from tile to tile, int64 [source, destination]."""
    moved = np.zeros((tiles, tiles), np.int64)
    for use in uses:
        if use.reads and use.buffer.kind not in OFF_CHIP:
            for tile in use.reads[0].active:
                copied, owner = use.copied(tile), use.home.owner
                held = np.bincount(owner if copied is True else owner[copied], minlength=tiles)
                moved[:, tile] += held * use.home.cells.itemsize
    np.fill_diagonal(moved, 0)
    return moved


def from_host(uses: Iterable[Use]) -> int:
    """Bytes from or to the host: feeds that are written, and rows of rings."""
    return sum(
        use.buffer.shape.bytes
        for use in uses
        if (use.buffer.kind == "feed" and use.writes) or (use.buffer.kind == "queue" and "leaf" in use.buffer.name)
    )
