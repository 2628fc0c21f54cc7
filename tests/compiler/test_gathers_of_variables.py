"""tf.gather_nd of variables, of which XLA has tf.gather alone, equals TensorFlow's on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

TABLE = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)


@pytest.mark.parametrize("indices", [[[1], [3], [3], [8]], [[1, 2], [3, 0], [3, 0]], [[[1, 2]], [[8, 5]]], []])
def test_values_and_gradients(indices: list[Any]) -> None:
    places = np.array(indices, np.int32).reshape(-1, 2) if not indices else np.array(indices, np.int32)

    def step(table: tf.Variable, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            values = tf.gather_nd(table, places)
            loss = tf.reduce_sum(tf.sin(values))
        return values, tf.convert_to_tensor(tape.gradient(loss, table))

    expected = step(tf.Variable(TABLE), tf.constant(places))
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        table = tf.Variable(TABLE)
        found = strategy.run(tf.function(lambda places: step(table, places), jit_compile=True), (places,))
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-6, atol=1e-6)
