"""Products of sparse and dense matrices, which XLA lacks, are TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from ipu._internal.compiler.trace import trace_step
from tests.engine.running import fast

PLACES = np.array([[0, 1], [2, 3], [2, 0], [4, 1], [2, 3]])


@pytest.mark.parametrize("adjoint_a, adjoint_b", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("count", [5, 0])
def test_values_and_gradients(adjoint_a: bool, adjoint_b: bool, count: int) -> None:
    """An element that is named twice counts twice."""

    def function(values: tf.Tensor, b: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([values, b])
            a = tf.SparseTensor(PLACES[:count], values, (5, 4))
            y = tf.sparse.sparse_dense_matmul(a, b, adjoint_a, adjoint_b)
            loss = tf.reduce_sum(tf.sin(y))
        return [y, *(tf.convert_to_tensor(each) for each in tape.gradient(loss, [values, b]))]

    rng = np.random.default_rng(0)
    b = rng.normal(size=(5 if adjoint_a else 4, 3)).astype(np.float32)
    given = [tf.constant(rng.normal(size=count).astype(np.float32)), tf.constant(b.T if adjoint_b else b)]
    module = trace_step(function, [tf.TensorSpec(each.shape, each.dtype) for each in given]).module
    for found, expected in zip(fast(module, [each.numpy() for each in given])[0], function(*given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place, rows, message", [((5, 0), 4, r"Received: \(5, 0\)"), ((0, 0), 3, "as many columns")])
def test_wrong_places_and_shapes_are_errors(place: tuple[int, int], rows: int, message: str) -> None:
    def function(b: tf.Tensor) -> tf.Tensor:
        return tf.sparse.sparse_dense_matmul(tf.SparseTensor([place], [1.0], (5, 4)), b)

    with pytest.raises(ValueError, match=message):
        trace_step(function, [tf.TensorSpec((rows, 2))])
