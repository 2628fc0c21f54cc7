"""Bytes exchanged between tiles before a compute set: those that a tile may read and does not hold itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.debug.span_elements import NO_TILE, mask_of
from engine.debug.uses import Use

OFF_CHIP = ("constant", "queue")
"""Kinds of buffers without exchange: all tiles have a copy of constants from the start; rings are in host memory."""


def exchanged(uses: Iterable[Use], tiles: int) -> np.ndarray:
    """Bytes from tile to tile, int64 [source, destination]."""
    moved = np.zeros((tiles, tiles), np.int64)
    for use in uses:
        if use.reads and use.buffer.kind not in OFF_CHIP:
            moved += _moved(use, tiles) * use.home.cells.itemsize
    np.fill_diagonal(moved, 0)
    return moved


def _moved(use: Use, tiles: int) -> np.ndarray:
    """Cells of one buffer that each tile reads, by the tile that holds them: int64 [holder, reader]."""
    owner = use.home.owner if use.written is None else use.home.owner[use.written]
    found = np.zeros((tiles, tiles), np.int64)
    if any(span_element.tiles is None for span_element in use.reads):
        found[:, list(use.reads[0].active)] = np.bincount(owner, minlength=tiles)[:, None]
    elif len(use.reads) == 1:
        reader = use.reads[0].tiles
        assert reader is not None
        reader = reader if use.written is None else reader[use.written]
        wanted = reader != NO_TILE
        pairs = np.bincount(owner[wanted].astype(np.int64) * tiles + reader[wanted], minlength=tiles * tiles)
        found += pairs.reshape(tiles, tiles)
    else:
        for tile in use.reads[0].active:
            mask = mask_of(use.reads, tile)
            assert isinstance(mask, np.ndarray)
            found[:, tile] = np.bincount(owner[mask if use.written is None else mask[use.written]], minlength=tiles)
    return found


def from_host(uses: Iterable[Use]) -> int:
    """Bytes from or to the host: feeds that are written, and rows of rings."""
    return sum(
        use.buffer.shape.bytes
        for use in uses
        if (use.buffer.kind == "feed" and use.writes) or (use.buffer.kind == "queue" and "leaf" in use.buffer.name)
    )
