"""Gradients of operators in a branch of a loop, by values of a graph around both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.keras.helpers import assert_close

rng = np.random.default_rng(0)
X, W = rng.normal(size=(6, 4)).astype(np.float32), rng.normal(size=(4, 4)).astype(np.float32)
IDS, LABELS, LENGTH, TIME = np.array([0, 2, 2, 1]), np.array([[1, 2]]), np.array([2]), np.array([4])
Step = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@ipu.custom_ops.vertex(split={"x": "elementwise", "y": "elementwise", "out": "elementwise"}, outputs=lambda x, y: [x])
def multiplied(x: Any, y: Any, out: Any) -> None:
    for k in range(x.size):
        out[k] = x[k] * y[k]


@multiplied.gradient
def multiplied_gradient(x: tf.Tensor, y: tf.Tensor, d_out: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"x": d_out * y, "y": d_out * x}


def outlined_twice(w: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    product = ipu.outlined_function(lambda row: tf.tanh(row @ w))
    return tf.reduce_sum(ipu.outlined_function(lambda row: product(row[None]) * row)(x))


def sliced(w: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    copied = ipu.ops.slicing_ops.sequence_slice(tf.zeros((4, 4)), w, [1, 2], [0, 1], [0, 2], True)
    return tf.reduce_sum(copied**2) * x[1]


CASES: dict[str, tuple[Step, Step]] = {
    "outlined": (
        lambda w, x: ipu.outlined_function(lambda row: tf.reduce_sum(tf.tanh(row * w)))(x),
        lambda w, x: tf.reduce_sum(tf.tanh(x * w)),
    ),
    "outlined in outlined": (outlined_twice, lambda w, x: tf.reduce_sum(tf.tanh(x[None] @ w) * x)),
    "serialized product": (
        lambda w, x: tf.reduce_sum(ipu.math_ops.serialized_matmul(w, w, 2, "a_columns") ** 2) * x[1],
        lambda w, x: tf.reduce_sum((w @ w) ** 2) * x[1],
    ),
    "serialized look-up": (
        lambda w, x: tf.reduce_sum(ipu.embedding_ops.embedding_lookup(w, IDS, serialization_factor=2) ** 2) * x[1],
        lambda w, x: tf.reduce_sum(tf.gather(w, IDS) ** 2) * x[1],
    ),
    "slices": (sliced, lambda w, x: (tf.reduce_sum(w[:1] ** 2) + tf.reduce_sum(w[1:3] ** 2)) * x[1]),
    "ctc": (
        lambda w, x: tf.reduce_sum(ipu.nn_ops.ctc_loss_v2(LABELS, (w * x)[:, None], LENGTH, TIME, blank_index=0)),
        lambda w, x: tf.reduce_sum(tf.nn.ctc_loss(LABELS, (w * x)[:, None], LENGTH, TIME, blank_index=0)),
    ),
    "vertex": (lambda w, x: tf.reduce_sum(multiplied(w, w) * x), lambda w, x: tf.reduce_sum(w * w * x)),
}


def gradients(step: Step) -> Any:
    """A function with the sum of `step` over the rows of X whose first number is positive, and its gradients."""

    @tf.function(jit_compile=True, autograph=False)
    def sums(w: tf.Tensor, x: tf.Tensor) -> Any:
        def add(k: tf.Tensor, total: tf.Tensor) -> Any:
            return k + 1, total + tf.cond(x[k, 0] > 0, lambda: step(w, x[k]), lambda: tf.reduce_sum(x[k]))

        with tf.GradientTape() as tape:
            tape.watch([w, x])
            loop = tf.while_loop(lambda k, _: k < 6, add, (tf.constant(0), tf.constant(0.0)), maximum_iterations=6)
        return loop[1], tape.gradient(loop[1], [w, x], unconnected_gradients=tf.UnconnectedGradients.ZERO)

    return sums


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_in_a_branch_of_a_loop_is_that_of_tensorflow(name: str) -> None:
    ours, theirs = map(gradients, CASES[name])
    given = (tf.constant(W), tf.constant(X))
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        found = strategy.run(ours, args=given)
    assert_close(tf.nest.map_structure(np.asarray, found), tf.nest.map_structure(np.asarray, theirs(*given)))


@pytest.mark.parametrize("name", ["outlined", "serialized product", "serialized look-up", "slices", "vertex"])
def test_operands_may_be_variables(name: str) -> None:
    step, plain = CASES[name]
    strategy, found = ipu.ipu_strategy.IPUStrategy(), []
    for scope, each in ((strategy.scope(), step), (tf.device("/CPU:0"), plain)):
        with scope:
            w = tf.Variable(W)

            @tf.function(jit_compile=True, autograph=False)
            def sums(x: tf.Tensor, w: tf.Variable = w, each: Step = each) -> Any:
                with tf.GradientTape() as tape:
                    result = each(w, x)
                gradient = tape.gradient(result, w)
                return result, tf.convert_to_tensor(gradient)

            found.append(strategy.run(sums, args=(X[0],)) if each is step else sums(X[0]))
    assert_close(*(tf.nest.map_structure(np.asarray, each) for each in found))


def test_a_serialized_layer_of_tf_keras_is_built_for_symbolic_inputs() -> None:
    import tf_keras

    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = tf_keras.Input((8,), batch_size=4)
        layer = tf_keras.ipu.layers.SerialDense(4, serialization_factor=2, serialization_dimension="kernel_rows")
        model = tf_keras.Model(inputs, layer(inputs))
        x = np.ones((4, 8), np.float32)
        np.testing.assert_allclose(model.predict(x, batch_size=4, verbose=0), x @ model.get_weights()[0], rtol=1e-5)
