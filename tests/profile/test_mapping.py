"""Linear mapping, and the bytes it puts on tiles, against element-by-element counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ir import Shape
from engine.profile.mapping import LINEAR, TileLoad, layout_of, spread
from engine.program.program import Buffer, Partition
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


@given(st.lists(st.integers(0, 2000), max_size=8), st.data())
def test_tile_load_counts_every_element(sizes: list[int], data: st.DataObject) -> None:
    load, expected, start = TileLoad(SMALL), np.zeros(7, np.int64), 0
    buffers = [Buffer(f"b{k}", Shape("f32", (size,))) for k, size in enumerate(sizes)]
    shares: dict[Buffer, np.ndarray] = {}
    for buffer in buffers:
        run = spread(buffer.shape.elements, 4, SMALL)
        shares[buffer] = np.zeros(7, np.int64)
        for element in range(buffer.shape.elements):
            shares[buffer][(start + element // run.per_tile) % 7] += 4
        start = (start + run.tiles) % 7
        load.add(buffer)
        expected += shares[buffer]
    assert np.array_equal(load.tile_bytes, expected)
    for buffer in data.draw(st.permutations(buffers)):
        load.remove(buffer)
        expected -= shares[buffer]
        assert np.array_equal(load.tile_bytes, expected)


@pytest.mark.parametrize(
    ("partition", "units", "layout"),
    [
        (None, 4, None),
        (Partition(10, 32, 8), 4, LINEAR),
        (Partition(1, 10, 5), 2, (1, 10)),
        (Partition(1, 10, 10), 1, LINEAR),
    ],
)
def test_layouts(partition: Partition | None, units: int, layout: tuple[int, int] | None) -> None:
    assert layout_of(Buffer("b", Shape("f32", (32, 10))), partition, units) == layout
