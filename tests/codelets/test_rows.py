"""The infeed's row gather and the outfeed, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.host.rows import (
    OUTFEED_CHUNK,
    encode_infeed,
    encode_outfeed,
    infeed,
    new_feed_block,
    outfeed,
    point_feed,
)
from engine.codelets.language import record
from engine.runtime.executor import RowKind, compute_row, control_row, new_scratch, new_state, step_table
from engine.runtime.feeds import RowFeed
from engine.runtime.workers import run_table
from tests.runtime.ranges import even_ranges


def oracle(feed: RowFeed, step: int, batch: int) -> np.ndarray:
    numbers = range(step * batch, (step + 1) * batch)
    return np.array([feed.array[i if feed.rows is None else feed.rows[i]] for i in numbers])


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("row_shape", [(), (1,), (3, 5), (0,)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_infeed_takes_the_rows_of_the_step(dtype: type, row_shape: tuple[int, ...], shuffled: bool) -> None:
    rng = np.random.default_rng(1)
    batch, steps = 7, 4
    array = rng.standard_normal((30, *row_shape)).astype(dtype)
    feed = RowFeed(array, rng.integers(0, 30, batch * steps) if shuffled else None)
    target, block, scratch = np.zeros((batch, *row_shape), dtype), new_feed_block(), new_scratch(1, 0)
    point_feed(block, feed.array, feed.rows)
    row_bytes = target.nbytes // batch
    made, units = encode_infeed(block.ctypes.data, target.ctypes.data, batch, row_bytes)
    parameters = record.block(made).words
    for step in range(steps):
        scratch.view(np.int64)[0, 0] = step
        for lo, hi in even_ranges(units, 2):
            infeed(parameters.ctypes.data, lo, hi, scratch.ctypes.data)
        np.testing.assert_array_equal(target, oracle(feed, step, batch))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 8, OUTFEED_CHUNK, OUTFEED_CHUNK + 4, 3 * OUTFEED_CHUNK - 1])
def test_outfeed_appends_each_step(size: int) -> None:
    rng = np.random.default_rng(2)
    ring, block, scratch = (
        np.zeros((3, size + 1), np.uint8)[:, :size].copy(),
        new_feed_block(),
        new_scratch(1, 0),
    )
    guard = ring.copy()
    source = np.zeros(size, np.uint8)
    point_feed(block, ring)
    made, units = encode_outfeed(block.ctypes.data, source.ctypes.data, size)
    parameters = record.block(made).words
    for step in range(3):
        source[:] = guard[step] = rng.integers(0, 256, size)
        scratch.view(np.int64)[0, 0] = step
        for lo, hi in even_ranges(units, 2):
            if lo < hi:
                outfeed(parameters.ctypes.data, lo, hi, scratch.ctypes.data)
        np.testing.assert_array_equal(ring, guard)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_feed_block_points_elsewhere_between_calls(workers: int) -> None:
    batch, blocks = 4, [new_feed_block(), new_feed_block()]
    buffer = np.zeros((batch, 6), np.float32)
    infeed_record, rows = encode_infeed(blocks[0].ctypes.data, buffer.ctypes.data, batch, 24)
    outfeed_record, chunks = encode_outfeed(blocks[1].ctypes.data, buffer.ctypes.data, buffer.nbytes)
    inward, outward = (record.block(each).words for each in (infeed_record, outfeed_record))
    table = step_table(
        [
            compute_row(infeed.address, inward.ctypes.data, even_ranges(rows, workers)),
            control_row(RowKind.SYNC, workers),
            compute_row(outfeed.address, outward.ctypes.data, even_ranges(chunks, workers)),
        ],
        workers,
    )
    state, scratch = new_state(workers), new_scratch(workers, 0)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        array, order = rng.random((50, 6), np.float32), rng.permutation(50)
        ring = np.zeros((12, batch, 6), np.float32)
        point_feed(blocks[0], array, order)
        point_feed(blocks[1], ring)
        assert run_table(table, 12, workers, scratch, state) == 12
        np.testing.assert_array_equal(ring, array[order[:48]].reshape(ring.shape))


def test_memory_the_codelets_would_misread_is_refused() -> None:
    block, array = new_feed_block(), np.zeros((4, 4))
    with pytest.raises(ValueError, match="C-contiguous"):
        point_feed(block, array.T[1:])
    with pytest.raises(ValueError, match="int64"):
        point_feed(block, array, np.zeros(4, np.int32))
    with pytest.raises(ValueError, match="contiguous"):
        point_feed(block, array, np.zeros(8, np.int64)[::2])
