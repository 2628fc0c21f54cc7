"""Queues under TF_POPLAR_FLAGS=--use_synthetic_data: the device makes its rows itself, and nothing comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError
from ipu import loops
from ipu.internal_ops import print_tensor
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from tests.strategy.helpers import compiled, replicas


def failing_elements() -> tf.data.Dataset:
    """A data set that must not be asked for elements."""

    def generate() -> Any:
        raise AssertionError("the data set is read")
        yield

    return tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([3], tf.float32))


@pytest.mark.parametrize("count", [1, 2])
def test_infeeds_give_zeros_without_the_dataset(
    strategy: IPUStrategyV1, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=infeed")
    replicas(count)
    infeed, outfeed = IPUInfeedQueue(failing_elements()), IPUOutfeedQueue()
    _ = infeed.initializer

    @compiled
    def run() -> Any:
        return loops.repeat(1000, lambda total, x: (total + x + 1.0, outfeed.enqueue(x)), [tf.zeros([3])], infeed)

    for _ in range(2):
        np.testing.assert_array_equal(strategy.run(run), [1000.0] * 3)
        rows = outfeed.dequeue()
        assert rows.shape == ((1000, 3) if count == 1 else (1000, 2, 3)) and not rows.numpy().any()
    _ = infeed.deleter


@pytest.mark.parametrize("kind", ["random", "uniform", "normal", "-7"])
def test_initializers(strategy: IPUStrategyV1, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    flags = f"--synthetic_data_categories=infeed,seed --synthetic_data_initializer={kind}"
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    dataset = tf.data.Dataset.from_tensors((tf.zeros([2000]), tf.zeros([2], tf.int32)))
    infeed = IPUInfeedQueue(dataset)
    _ = infeed.initializer

    @compiled
    def run() -> Any:
        return loops.repeat(1, lambda _, __, x, i: [x, i], [tf.zeros([2000]), tf.zeros([2], tf.int32)], infeed)

    floats, integers = strategy.run(run)
    if kind == "-7":
        assert (floats.numpy() == -7).all() and (integers.numpy() == -7).all()
    else:
        lowest, mean, deviation = (0.0, 0.5, 12**-0.5) if kind == "uniform" else (-np.inf, 0.0, 1.0)
        assert floats.numpy().min() >= lowest
        # Each bound is five standard errors.
        assert abs(floats.numpy().mean() - mean) < 5 * deviation / 2000**0.5
        assert abs(floats.numpy().std() - deviation) < 5 * deviation / 2000**0.5


def test_an_unknown_initializer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data --synthetic_data_initializer=ones")
    with pytest.raises(ConfigurationError, match="Received: 'ones'"):
        _ = IPUInfeedQueue(failing_elements()).initializer


def test_outfeeds_give_nothing(
    strategy: IPUStrategyV1, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    everything, last = IPUOutfeedQueue(buffer_depth=1), IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)

    @compiled
    def run(n: tf.Tensor) -> Any:
        for i in tf.range(n):
            everything.enqueue({"big": tf.fill([5000], i), "i": i})
            last.enqueue(print_tensor(i, "number"))
        return n

    assert strategy.run(run, args=(tf.constant(3000),)) == 3000
    rows = everything.dequeue()
    assert rows["big"].shape == (0, 5000) and rows["i"].shape == (0,) and rows["i"].dtype == tf.int32
    assert list(everything) == []
    with pytest.raises(tf.errors.FailedPreconditionError, match="before it was executed"):
        last.dequeue()
    assert capfd.readouterr().err.count("number: ") == 3000
