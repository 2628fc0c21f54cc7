"""Functions over several IPUs by `ipu_shard`: how many replicas remain for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu.ipu_strategy import IPUStrategyV1
from tests.keras.helpers import FEATURES, Kit, data
from tests.strategy.helpers import compiled, numbers, replicas


@pytest.mark.parametrize(("ipus", "shards", "left"), [(8, [[0], [1]], 4), (8, [[0, 1, 2]], 2), (2, [[0], [1]], 1)])
def test_replicas_of_a_function_over_shards(strategy: IPUStrategyV1, ipus: int, shards: Any, left: int) -> None:
    """Training a model, section 6.4.1: sharded over two of eight IPUs, a graph is replicated four times."""
    replicas(ipus)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def step(x: tf.Tensor) -> Any:
        total = x
        for indices in shards:
            with ipu.scopes.ipu_shard(indices if len(indices) > 1 else indices[0]):
                total = total + ipu.cross_replica_ops.cross_replica_sum(x)
        return outfeed.enqueue(total)

    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers(shape=(2,)))
    with strategy.scope():
        _ = infeed.initializer
        strategy.run(compiled(lambda: ipu.loops.repeat(2, step, infeed_queue=infeed)))
    elements = np.arange(2 * left, dtype=np.float32).reshape(2, left)
    expected = elements + len(shards) * elements.sum(1, keepdims=True)
    received = outfeed.dequeue().numpy()
    np.testing.assert_array_equal(
        received, np.repeat(expected[..., None], 2, -1) if left > 1 else expected.repeat(2, 1)
    )


def test_ipus_that_do_not_divide_among_shards_are_refused(strategy: IPUStrategyV1) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        with ipu.scopes.ipu_shard(1):
            return x * 2.0

    replicas(3)
    with pytest.raises(ValueError, match="3 IPUs, 2 for one replica"):
        strategy.run(compiled(function), (tf.ones(2),))
    replicas(2)
    np.testing.assert_array_equal(strategy.run(compiled(function), (tf.ones(2),)), [2, 2])


def test_the_report_on_shards_says_that_it_is_of_one_chip(strategy: IPUStrategyV1) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        with ipu.scopes.ipu_shard(1):
            return x * 2.0

    replicas(2)
    with strategy.scope():
        report = ipu.profile(compiled(function), tf.ones(2), path=None)
    assert report.data["limits"]["shards"] == 2
    assert all(
        "2 shards of a replica count as one chip" in " ".join(each.split()) for each in (report.text(), report.html())
    )


def test_shards_in_a_keras_model_of_several_replicas_are_refused(kit: Kit, strategy: IPUStrategyV1) -> None:
    class Sharded(kit.keras.layers.Layer):  # type: ignore[name-defined]
        def call(self, x: tf.Tensor) -> tf.Tensor:
            with ipu.scopes.ipu_shard(1):
                return x * 2.0

    layers = kit.keras.layers
    with strategy.scope():
        model = kit.keras.Sequential([layers.Input((FEATURES,)), Sharded(), layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
    replicas(2)
    with pytest.raises(ValueError, match="ipu_shard over 2 IPUs in a model of 2 replicas"):
        model.fit(*data(16), batch_size=4, verbose=0)
    replicas(1)
    model.fit(*data(16), batch_size=4, verbose=0)
