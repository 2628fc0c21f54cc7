"""Iterations per second of a loop on the device with an outfeed, or with an infeed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import loops
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy

ROUNDS = 5


def rates(run: Any, iterations: int, benchmark: Any) -> None:
    """Note the iterations per second by the clock, and per second of the time of all cores."""
    run()
    wall: list[float] = []
    cores: list[float] = []

    def turn() -> None:
        start, start_of_cores = time.perf_counter(), time.process_time()
        run()
        wall.append(iterations / (time.perf_counter() - start))
        cores.append(iterations / (time.process_time() - start_of_cores))

    benchmark.pedantic(turn, rounds=ROUNDS)
    rounded = {"iterations/s": round(float(np.median(wall))), "iterations/s/core": round(float(np.median(cores)))}
    benchmark.extra_info.update(rounded)
    print(rounded)


@pytest.mark.parametrize("iterations", [10_000, 1_000_000])
def test_outfeed(iterations: int, benchmark: Any) -> None:
    """The promise is 500 000 iterations per second and core."""
    strategy, queue = IPUStrategy(), IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def count() -> tf.Tensor:
        return loops.repeat(iterations, lambda i: (i + 1.0, queue.enqueue(i)), [0.0])

    def run() -> None:
        assert strategy.run(count) == iterations
        assert float(queue.dequeue()[-1]) == iterations - 1

    rates(run, iterations, benchmark)


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_infeed(size: int, benchmark: Any) -> None:
    """Each element is one step of tf.data's iterator, which Python advances."""
    strategy, iterations = IPUStrategy(), 2000
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensors(tf.ones([size])).repeat())
    _ = queue.initializer

    @tf.function(jit_compile=True)
    def total() -> tf.Tensor:
        return loops.repeat(iterations, lambda i, x: i + x[0], [0.0], queue)

    def run() -> None:
        assert strategy.run(total) == iterations

    rates(run, iterations, benchmark)
