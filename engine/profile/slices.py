"""Look-ups of rows by index, and updates of them: multi-slice and multi-update-add, planned as in poplibs.

The table is partitioned by rows and columns. Tiles that hold the same block divide the look-ups. A tile checks every
index of its share, and takes longer for rows that it holds. If rows are partitioned, a second stage selects each row
from the block that has it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from engine.frozen import frozen
from engine.profile.cuts import FEW_TILES, nice_cuts
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import prologue, tables
from engine.target import Target

INDEX_BYTES = 4


@frozen
class Lookup:
    """A look-up of `lookups` rows, of `width` elements each, in a table of `rows`; `updates` adds to them instead.

    `away` is True if the table is not on the tiles that need it.
    """

    rows: int
    width: int
    lookups: int
    item_bytes: int
    updates: bool = False
    away: bool = False


@lru_cache(maxsize=1024)
def plan_lookup(lookup: Lookup, target: Target, memory_proportion: float = 0.6) -> SuperstepCost:
    """The plan of fewest cycles within the granted memory, else that of least memory."""
    rows, columns, shares = _cuts(lookup, target)
    height, width, count = -(-lookup.rows // rows), -(-lookup.width // columns), -(-lookup.lookups // shares)
    row_bytes = width * lookup.item_bytes
    own = -(-count // rows)
    word = tables()["slices"]["half_elements"] * 2 if lookup.item_bytes == 2 else target.vector_bytes
    words = -(-row_bytes // word)
    compute = _slots(own, count - own, words, lookup.updates, target)
    # The tiles that share a block of a resident table each hold a part of it.
    missing = height * row_bytes if lookup.away else height * row_bytes * (shares - 1) // shares
    received = count * INDEX_BYTES + (0 if lookup.updates else missing)
    if lookup.updates:
        received = received + count * row_bytes
        # Blocks of the table to which several tiles have added are summed.
        partials = height * row_bytes
        summed = -(-partials // target.vector_bytes)
        compute = compute + np.where(shares > 1, summed + _slots(0 * own, 0 * own, words, False, target), 0)
        # Each of these tiles sums a part of the block, and receives it from the others while its own block is live.
        moved = partials * (shares - 1) // shares
        several = shares > 1
        held = np.where(several, partials, 0) + np.maximum(received, moved)
    else:
        moved = np.where(rows > 1, count * row_bytes, 0)
        held = received + moved
        second = _slots(-(-count // rows), -(-count // rows) * (rows - 1), words, False, target)
        compute = compute + np.where(rows > 1, second, 0)
        several = rows > 1
    start, per_cycle = target.exchange_start_cycles, target.exchange_bytes_per_cycle
    exchange = start + -(-received // per_cycle) + np.where(several, start + -(-moved // per_cycle), 0)
    sync = np.where(several, 2, 1) * target.superstep_sync
    cycles = compute + exchange + sync
    capacity = memory_proportion * target.bytes_per_tile
    fits = held <= capacity
    far = np.iinfo(np.int64).max
    order = (held, np.where(fits, cycles, far)) if fits.any() else (cycles, held)
    best = np.lexsort(order)[0]
    costs = (compute[best], exchange[best], sync[best], (rows * columns * shares)[best], held[best])
    cycles, exchanged, synced, tiles, bytes_held = map(int, costs)
    return SuperstepCost(cycles, exchanged, synced, tiles, bytes_held, bytes_held, "slices")


def _cuts(lookup: Lookup, target: Target) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of blocks of rows, columns and look-ups (int64 [n] each), whose product is at most `target.tiles`."""
    tiles = target.tiles
    extents = (lookup.rows, lookup.width, lookup.lookups)
    if tiles <= FEW_TILES:
        axes = [np.arange(1, min(tiles, max(1, extent)) + 1) for extent in extents]
    else:
        axes = [np.array(nice_cuts(extent, tiles), np.int64) for extent in extents]
    rows, columns, shares = (axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij"))
    fits = rows * columns * shares <= tiles
    return rows[fits], columns[fits], shares[fits]


def _slots(inside: np.ndarray, outside: np.ndarray, words: np.ndarray, updates: bool, target: Target) -> np.ndarray:
    """Cycles of a tile for `inside` indices of its own rows, of `words` words each, and `outside` indices of others."""
    table = tables()["slices"]
    each = table["in_range"] + words * table["update_word" if updates else "word"]
    supervisor, worker = prologue(())
    return supervisor + target.workers_per_tile * worker + inside * each + outside * table["out_of_range"]
