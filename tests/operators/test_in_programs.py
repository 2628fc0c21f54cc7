"""Operators inside Keras models, replicas and pipelines that recompute."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ops.pipelining_ops import OptimizerFunctionOutput, RecomputationMode, pipeline

from tests.strategy.helpers import replicas


class Operators(keras.layers.Layer):
    """A layer of operators, or of TensorFlow's own."""

    def __init__(self, are_ipus: bool) -> None:
        super().__init__()
        self.are_ipus = are_ipus

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(6, 4))
        self.kernel = self.add_weight(shape=(4, 8))

    def call(self, ids: Any) -> Any:
        if not self.are_ipus:
            return tf.nn.gelu(tf.gather(self.table, ids) @ self.kernel, approximate=True)
        rows = ipu.embedding_ops.embedding_lookup(self.table, ids, serialization_factor=3)
        products = ipu.math_ops.serialized_matmul(rows, self.kernel, 2, "a_columns")
        return ipu.rand_ops.dropout(ipu.nn_ops.gelu(products), 0.0)


def test_keras_models_on_replicas() -> None:
    replicas(2)
    ids, labels = np.arange(48, dtype=np.int32) % 6, np.arange(48) % 3
    weights = []
    with ipu.ipu_strategy.IPUStrategy().scope():
        for are_ipus in (True, False):
            keras.utils.set_random_seed(1)
            inputs = keras.Input((), dtype="int32")
            model = keras.Model(inputs, keras.layers.Dense(3)(Operators(are_ipus)(inputs)))
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(0.1), loss, steps_per_execution=2)
            before = model.evaluate(ids, labels, batch_size=8, verbose=0)
            model.fit(ids, labels, batch_size=8, epochs=4, shuffle=False, verbose=0)
            assert model.evaluate(ids, labels, batch_size=8, verbose=0) < 0.8 * before
            weights.append(model.get_weights())
    for received, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-3, atol=1e-4)


def test_recomputed_dropout_has_the_same_mask() -> None:
    """The loss, and its gradient by a weight of 1, are both the sum of the elements that dropout kept."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus, config.allow_recompute = 2, True
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        weight, optimizer = tf.Variable(1.0), keras.optimizers.SGD(0.01)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        values = np.arange(1, 65, dtype=np.float32)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(values).repeat())
        _ = infeed.initializer

        def first(x: tf.Tensor) -> tf.Tensor:
            return tf.exp(ipu.rand_ops.dropout(x * 0.01, 0.5) * weight)

        def second(x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(tf.math.log(x))

        @tf.function(jit_compile=True)
        def step() -> None:
            pipeline(
                [first, second],
                4,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
                recomputation_mode=RecomputationMode.RecomputeThenBackpropagate,
                reduction_method="sum",
            )

        strategy.run(step)
        losses = np.ravel(outfeed.dequeue())
    assert len(set(losses)) == 4
    np.testing.assert_allclose(weight.numpy(), 1 - 0.01 * losses.sum(), rtol=1e-4)
