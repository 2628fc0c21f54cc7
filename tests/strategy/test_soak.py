"""Many runs with queues: neither threads nor device buffers nor allocated memory grow."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from tests.exploring import seed
from tests.interrupting import wait_for
from tests.keras.test_soak import alive, assert_allocates_nothing, assert_nothing_grew, earlier_objects_apart
from tests.strategy.helpers import compiled, numbers

__all__ = ["earlier_objects_apart"]  # a fixture that pytest uses
RUNS = 100 if seed() is None else 200


def threads() -> int:
    """The number of threads of the process, without the one that serves all outfeeds, which comes and goes."""
    return sum(thread.name != "ipu-outfeeds" for thread in threading.enumerate())


def test_many_runs(strategy: IPUStrategyV1) -> None:
    from engine.runtime.buffers import DeviceBuffer

    queue, made = IPUOutfeedQueue(), 0
    with strategy.scope():
        weights = tf.Variable(tf.zeros([64, 64]))
        iterator = iter(numbers(shape=(64, 64)))

    @compiled
    def step(n: int, iterator: Any) -> None:
        for _ in tf.range(n):
            x = next(iterator)
            weights.assign_add(x)
            queue.enqueue((tf.reduce_sum(weights), x))

    def runs(count: int) -> None:
        nonlocal made
        weights.assign(tf.zeros([64, 64]))
        for _ in range(count):
            strategy.run(step, args=(10, iterator))
            _, elements = queue.dequeue()
            assert elements.shape == (10, 64, 64)
        expected = np.float32(sum(range(10 * made, 10 * (made + count))))
        np.testing.assert_array_equal(weights, np.full((64, 64), expected))
        made += count

    runs(30)
    gc.collect()
    before = alive(DeviceBuffer), threads()
    assert_allocates_nothing(lambda: runs(RUNS), RUNS)
    assert_nothing_grew(before, (alive(DeviceBuffer), threads()))


def test_queues_made_again(strategy: IPUStrategyV1) -> None:
    """Each initialization ends the former thread; iterators without references end theirs, too."""

    @compiled
    def take(iterator: Any) -> tf.Tensor:
        return next(iterator)

    before = threads()
    for _ in range(RUNS // 10):
        with strategy.scope():
            iterator = iter(numbers())
        for _ in range(3):
            assert strategy.run(take, args=(iterator,)) == 0.0
            _ = iterator._infeed_queue.deleter
            _ = iterator._infeed_queue.initializer
    del iterator
    gc.collect()
    assert wait_for(lambda: threads() <= before)
