"""Candidate partitions of a convolution for the planner: all of them on few tiles, a few thousand on many."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from engine.profile.convolution import Cuts, PlannedConvolution
from engine.target import Target

FEW_TILES = 32
"""Number of tiles up to which all partitions are candidates."""
NICE_COUNTS = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256),
    *(320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768),
)
FIRST_CUTS = range(1, 13)
CAPACITY_SHARES = ((1, 1), (3, 4), (1, 2), (1, 4), (1, 8))
"""Fractions, of the tiles that remain, that are tried for output positions; larger ones are mostly better."""


def candidate_cuts(convolution: PlannedConvolution, target: Target) -> Cuts:
    """Candidate partitions, at least one. Several with the same blocks are represented by the one of fewest tiles."""
    size = convolution.size
    found = _candidates(size.groups, convolution.rows, size.outputs, convolution.k, target.tiles)
    return Cuts(*(np.ascontiguousarray(column) for column in found.T))


@lru_cache(maxsize=1024)
def _candidates(groups: int, rows: int, outputs: int, k: int, tiles: int) -> np.ndarray:
    """Int64 [n, 4]: number of blocks of groups, rows, outputs and k, whose product is at most `tiles`."""
    if tiles <= FEW_TILES:
        across = sorted({-(-groups // -(-groups // c)) for c in range(1, min(groups, tiles) + 1)})
        three = _all_of_three(tiles)
        cuts = np.concatenate([np.column_stack([np.full(len(three), g), three]) for g in across])
        cuts = cuts[cuts.prod(axis=1) <= tiles]
        extents = np.array([groups, rows, outputs, k])
        return cuts[np.all(cuts <= extents, axis=1)]
    found = []
    for g in _group_cuts(groups, tiles):
        left = tiles // g
        o, c = (np.array(nice_cuts(extent, left), np.int64) for extent in (outputs, k))
        o, c = (axis.reshape(-1) for axis in np.meshgrid(o, c))
        fits = o * c <= left
        o, c = o[fits], c[fits]
        capacity = np.minimum(left // (o * c), rows)
        for numerator, denominator in CAPACITY_SHARES:
            some = np.maximum(capacity * numerator // denominator, 1)
            blocks = -(-rows // some)
            found.append(np.column_stack([np.full(len(o), g), -(-rows // blocks), o, c]))
        found.append(np.column_stack([np.full(len(o), g), np.ones_like(o), o, c]))
    every = np.concatenate(found)
    # One number per candidate sorts fast; no dimension has more blocks than there are tiles.
    position = (tiles + 1) ** np.arange(3, -1, -1, dtype=np.int64)
    _, first = np.unique(every @ position, return_index=True)
    return every[first]


def _group_cuts(groups: int, tiles: int) -> list[int]:
    """Numbers of blocks: as many as possible, those with blocks of a vector or of the matrix engine's size, and one."""
    blocks = {max(1, -(-groups // tiles)), *(p for p in (1, 2, 4, 8, 16, 32, 64) if p < groups), groups}
    return sorted({-(-groups // p) for p in blocks if -(-groups // p) <= tiles})


def nice_cuts(extent: int, most: int) -> list[int]:
    """Numbers of blocks, ascending: small ones, those with blocks of sizes in NICE_COUNTS, and the largest allowed."""
    extent = max(1, extent)
    blocks = {-(-extent // c) for c in (*FIRST_CUTS, most) if c <= extent} | {p for p in NICE_COUNTS if p <= extent}
    return sorted({-(-extent // p) for p in blocks if -(-extent // p) <= most})


@cache
def _all_of_three(tiles: int) -> np.ndarray:
    found = [
        (a, b, c) for a in range(1, tiles + 1) for b in range(1, tiles // a + 1) for c in range(1, tiles // (a * b) + 1)
    ]
    return np.array(found, np.int64)
