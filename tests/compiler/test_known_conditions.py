"""A conditional of a known condition becomes the branch that runs: XLA might refuse the shapes of the other one."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu._internal.compiler.trace import trace_step
from tests.engine.running import fast


@pytest.mark.parametrize("length", [2, 6, 7])
def test_associative_scans_have_values_and_gradients(length: int) -> None:
    """h[t] = a[t] h[t - 1] + x[t]; Keras writes a conditional at each level."""

    def function(a: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(a)
            after = keras.ops.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, x), axis=1)[1]
        return after, tape.gradient(after, a)

    rng = np.random.default_rng(0)
    given = [rng.normal(size=(2, length, 3)) for _ in range(2)]
    module = trace_step(function, [tf.TensorSpec(each.shape, each.dtype) for each in given]).module
    after, gradient = fast(module, given)[0]
    a, x = given
    expected, state = np.empty_like(x), np.zeros((2, 3))
    for t in range(length):
        expected[:, t] = state = a[:, t] * state + x[:, t]
    np.testing.assert_allclose(after, expected, rtol=1e-12)
    wanted, later = np.zeros_like(x), np.zeros((2, 3))
    for t in reversed(range(length)):
        later = 1 + later * (a[:, t + 1] if t + 1 < length else 0)
        wanted[:, t] = later * expected[:, t - 1] if t else 0
    np.testing.assert_allclose(gradient, wanted, rtol=1e-12)


def test_leaves_are_those_of_a_conditional() -> None:
    variable = tf.Variable(1.0)

    def function(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        known = tf.equal(x.shape[0], 2)
        made = tf.cond(known, lambda: {"a": 3.0, "b": [x]}, lambda: {"a": 4.0, "b": [x + 1]})
        passed = tf.cond(known, lambda: tf.group(variable.assign(x[0])), lambda: tf.no_op())
        return made["a"], made["b"][0], passed

    step = trace_step(function, [tf.TensorSpec((2,))])
    assert "conditional" not in {each.opcode for each in step.module.entry.instructions}
    assert step.updated, "the operation of the branch that runs is lost"
    a, b, passed = fast(step.module, [np.array([5.0, 6.0], np.float32), np.float32(1)])[0]
    assert (a, passed) == (3, True)
    np.testing.assert_array_equal(b, [5, 6])
