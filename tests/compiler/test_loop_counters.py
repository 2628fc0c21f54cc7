"""Gradients of loops without maximum_iterations, where counters say how many iterations can run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation
from ipu.ipu_compiler import compile as compile_program

v1 = tf.compat.v1
POINT = np.float32([0.5, -1.5])


def counted(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda k, *_: k < 5, lambda k, y: (k + 1, y * x + 1), (0, x))[1]


def downwards(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda y, k: k >= -4, lambda y, k: (tf.sin(y) * x, k - 3), (x, tf.constant(7, tf.int64)))[0]


def ended_by_a_value(x: tf.Tensor) -> tf.Tensor:
    def going_on(k: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(tf.reduce_sum(tf.abs(y)) < 9, tf.not_equal(k, 20))

    return tf.while_loop(going_on, lambda k, y: (k + 2, y * 1.5 + x), (tf.constant(0), x))[1]


def nested(x: tf.Tensor) -> tf.Tensor:
    def outer(k: tf.Tensor, y: tf.Tensor) -> Any:
        inner = tf.while_loop(lambda j, *_: j < k % 4, lambda j, z: (j + 1, z * x), (tf.constant(0), y))
        fixed = tf.while_loop(lambda j, *_: j < 3, lambda j, z: (j + 1, tf.tanh(z)), (tf.constant(0), y))
        return k + 1, y + tf.stop_gradient(inner[1]) + tf.cond(y[0] > 0, lambda: fixed[1], lambda: x)

    return tf.while_loop(lambda k, *_: k < 4, outer, (tf.constant(0), x))[1]


def by_autograph(x: tf.Tensor) -> tf.Tensor:
    y = x
    for factor in tf.range(3):
        y += tf.cast(factor, tf.float32) * tf.tanh(x)
    k = tf.constant(0)
    while k < 4:
        y, k = tf.cos(y) * x, k + 1
    return y


@pytest.mark.parametrize("function", [counted, downwards, ended_by_a_value, nested, by_autograph])
@pytest.mark.parametrize("in_graph", [False, True])
def test_gradients_are_those_of_tensorflow(function: Any, in_graph: bool) -> None:
    def gradient(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x)

    expected = tf.function(gradient)(tf.constant(POINT))
    if in_graph and function is not by_autograph:
        with tf.Graph().as_default(), v1.Session() as session:
            program = compile_program(lambda x: (y := function(x), v1.gradients(y, x)[0]), [tf.constant(POINT)])
            found = session.run(program)
    else:
        with ipu.ipu_strategy.IPUStrategy().scope() as strategy:
            found = strategy.run(tf.function(gradient, jit_compile=True), [tf.constant(POINT)])
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_a_loop_that_only_values_end_has_no_gradient() -> None:
    def gradient(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda y: tf.reduce_sum(tf.abs(y)) < 9, lambda y: (y * 1.5 + x,), (x,))[0]
        return tape.gradient(y, x)

    with ipu.ipu_strategy.IPUStrategy().scope() as strategy:
        with pytest.raises(UnsupportedOperation, match="Give tf.while_loop maximum_iterations"):
            strategy.run(tf.function(gradient, jit_compile=True), [tf.constant(POINT)])
