"""Linear mapping, and the bytes it puts on tiles, compared with counting element by element."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.profile.mapping import Placer, spread
from engine.target import target

SMALL = target("ipu2", tiles=7)


@given(st.integers(0, 3000), st.sampled_from([1, 2, 4, 8]))
def test_spread_holds_everything_on_as_few_tiles_as_its_grain_asks(count: int, item: int) -> None:
    run = spread(count, item, SMALL)
    assert run.per_tile * run.tiles >= count
    assert run.tiles <= 7
    if count:
        assert run.per_tile * (run.tiles - 1) < count
        assert run.per_tile * item >= min(128, count * item)
    if run.tiles > 1:
        assert run.per_tile * item % 8 == 0


@given(st.lists(st.tuples(st.integers(0, 2000), st.none() | st.integers(1, 9)), max_size=8), st.data())
def test_placements_count_every_element(arrays: list[tuple[int, int | None]], data: st.DataObject) -> None:
    placer, found, expected, start = Placer(SMALL), np.zeros(7, np.int64), np.zeros(7, np.int64), 0
    placed = []
    for size, tiles in arrays:
        run = spread(size, 4, SMALL) if tiles is None else spread(size, 4, SMALL, min(7, tiles))
        share = np.zeros(7, np.int64)
        for element in range(size):
            share[(start + element // run.per_tile) % 7] += 4
        start = (start + run.tiles) % 7
        placement = placer.place(size, 4, tiles)
        assert placement.bytes == 4 * size
        assert set(placement.numbers()) == set(np.flatnonzero(share))
        placement.add_to(found)
        expected += share
        placed.append((placement, share))
    assert np.array_equal(found, expected)
    for placement, share in data.draw(st.permutations(placed)):
        placement.add_to(found, -1)
        expected -= share
        assert np.array_equal(found, expected)


@given(st.integers(1, 3000), st.integers(1, 7), st.sampled_from([1, 2, 4]))
def test_a_plan_spreads_over_all_its_tiles_in_whole_vectors(count: int, tiles: int, item: int) -> None:
    run = spread(count, item, SMALL, tiles)
    assert run.tiles <= tiles
    assert run.per_tile * (run.tiles - 1) < count <= run.per_tile * run.tiles
    assert run.tiles == 1 or run.per_tile * item % 8 == 0
    assert run.per_tile <= -(-count // tiles) + 8 // item
