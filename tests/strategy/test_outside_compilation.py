"""outside_compilation_scope: TensorFlow executes operations that XLA lacks on the host, in the middle of a step."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation
from tests.strategy.helpers import written

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
outside = ipu.scopes.outside_compilation_scope


def test_operations_without_a_kernel_of_xla_run(strategy: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Text, prints and shapes that depend on values work in a loop, between computations of the device."""

    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> tf.Tensor:
        def iteration(x: tf.Tensor) -> tf.Tensor:
            y = x * 2
            with outside("text"):
                text = tf.strings.as_string(y, precision=1)
                tf.print(text[0])
                positive = tf.size(tf.boolean_mask(y, y > 0))
                length = tf.cast(tf.reduce_sum(tf.strings.length(text)), tf.float32)
            return y + tf.cast(positive, tf.float32) * length

        return ipu.loops.repeat(2, iteration, [x])

    expected = X.copy()
    texts = []
    for _ in range(2):
        y = expected * 2
        texts.append(" ".join(f'"{v:.1f}"' for v in y[0]))
        expected = y + (y > 0).sum() * sum(len(f"{v:.1f}") for v in y.reshape(-1))
    np.testing.assert_array_equal(strategy.run(body, (tf.constant(X),)), expected)
    assert written(capfd) == "".join(f"[{text}]\n" for text in texts)


def test_results_have_gradients_and_variables_are_read(strategy: Any) -> None:
    with strategy.scope():
        w = tf.Variable([1.0, 2.0, 3.0])

    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            with outside():
                y = tf.sin(x) * w
                two = tf.constant(2.0)
            loss = tf.cond(tf.reduce_sum(y) > 100, lambda: 0.0, lambda: tf.reduce_sum(y * y * two))
        return loss, *tape.gradient(loss, [x, w])

    loss, by_x, by_w = strategy.run(body, (tf.constant(X),))
    x, v = X.copy(), np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(loss, 2 * np.sum((np.sin(x) * v) ** 2), rtol=1e-5)
    np.testing.assert_allclose(by_x, 4 * np.sin(x) * np.cos(x) * v**2, rtol=1e-5)
    np.testing.assert_allclose(by_w, np.sum(4 * np.sin(x) ** 2 * v, axis=0), rtol=1e-5)


def test_misuse(strategy: Any) -> None:
    with strategy.scope():
        w = tf.Variable(1.0)

    @tf.function(jit_compile=True)
    def assigns(x: tf.Tensor) -> tf.Tensor:
        with outside("writer"):
            w.assign(2.0)
        return x

    with pytest.raises(UnsupportedOperation, match="'writer' to read variables alone. Received: AssignVariableOp"):
        strategy.run(assigns, (tf.constant(X),))

    @tf.function(jit_compile=True)
    def dynamic(x: tf.Tensor) -> tf.Tensor:
        with outside():
            y = tf.boolean_mask(x, x > 0)
        return y + 1

    with pytest.raises(UnsupportedOperation, match="static shape. Received: .*float32"):
        strategy.run(dynamic, (tf.constant(X),))
    assert float(w) == 1


LOSSES = {
    "product": lambda y: y * y,
    "power": lambda y: y**3,
    "sine": tf.sin,
    "logarithm": lambda y: tf.math.log(1 + y * y),
    "matrix": lambda y: tf.matmul(y, y, transpose_b=True),
    "softmax": lambda y: tf.nn.softmax(y) * y,
    "chosen": lambda y: tf.where(y > 0, y * y, -y),
    "gathered": lambda y: tf.gather(y, [1, 0, 1]) ** 2,
    "branch": lambda y: tf.cond(tf.reduce_sum(y) > 0, lambda: y * y, lambda: y),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_inside_has_gradients(strategy: Any, name: str) -> None:
    """Gradients read the operations' own inputs, and are taken by a variable that is read inside and by a tensor."""
    with strategy.scope():
        w = tf.Variable([0.5, -1.5, 2.5])

    def gradients(scope: Any, x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * 0.25
            with scope():
                loss = tf.reduce_sum(LOSSES[name](y * w) * 2)
        return tape.gradient(loss, [x, w])

    step = tf.function(lambda x: gradients(outside, x), jit_compile=True)
    found = strategy.run(step, (tf.constant(X),))
    for value, expected in zip(found, gradients(contextlib.nullcontext, tf.constant(X)), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def test_losses_of_two_scopes_and_a_second_derivative(strategy: Any) -> None:
    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            with outside():
                y = x * x
            with outside():
                loss = tf.reduce_sum(y * x)
        return tape.gradient(loss, x)

    np.testing.assert_allclose(strategy.run(step, (tf.constant(X),)), 3 * X**2, rtol=1e-6)
