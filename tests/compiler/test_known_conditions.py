"""Conditionals of a known condition become the branch that runs; sizes known in loops and branches remain constants."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu._internal.compiler.trace import trace_step
from tests.compiler.test_segments import check
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


def moved(x: tf.Tensor) -> tf.Tensor:
    """Axes, permutations and multiples that follow from shapes, which the gradient's operations need, too."""
    last, rows = tf.rank(x) - 1, tf.shape(x)[0]
    x = tf.nn.softmax(x, axis=0) + tf.reverse(x, [last]) * tf.transpose(tf.transpose(x, [last, 0]), [last, 0])
    return x * tf.tile(x[:1], [rows, 1]) + tf.gather(x, tf.range(rows)[::-1], axis=last - 1)


@pytest.mark.parametrize("where", ["loop", "branch", "branch in a loop"])
def test_gradients_have_the_constants_of_the_forward_pass(where: str) -> None:
    def branch(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: moved(x), lambda: moved(-x))

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        inner = moved if where == "loop" else branch
        if where == "branch":
            return [inner(x)]
        return list(tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, inner(y)), (0, x)))[1:]

    check(function, np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
