"""Linear regression with feeds, as a first program of TensorFlow 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import check, trained_on_host, variables_of

v1 = tf.compat.v1
X = np.random.default_rng(0).uniform(-1, 1, [160, 1]).astype(np.float32)
Y = 3 * X + 1
BATCHES = [(X[start : start + 16], Y[start : start + 16]) for start in range(0, 160, 16)] * 5


def squared_error(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with v1.variable_scope("linear", use_resource=True):
        slope = v1.get_variable("slope", [1, 1], initializer=v1.constant_initializer(0.5))
        offset = v1.get_variable("offset", initializer=tf.zeros([1]))
    return tf.reduce_mean(tf.square(tf.matmul(x, slope) + offset - y), name="loss")


def test_linear_regression() -> None:
    x = v1.placeholder(tf.float32, [None, 1], name="x")
    y = v1.placeholder(tf.float32, [None, 1], name="y")
    step = v1.train.get_or_create_global_step()

    def training_step(x: tf.Tensor, y: tf.Tensor) -> Any:
        loss = squared_error(x, y)
        return loss, v1.train.GradientDescentOptimizer(0.3).minimize(loss, global_step=step)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (loss,) = ipu.ipu_compiler.compile(training_step, [x, y])
    ipu.utils.move_variable_initialization_to_cpu()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        losses = [session.run(loss, {x: bx, y: by}) for bx, by in BATCHES]
        ours = variables_of(session)
    theirs, expected = trained_on_host(squared_error, lambda: v1.train.GradientDescentOptimizer(0.3), BATCHES)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-7)
    check(ours, theirs)
    np.testing.assert_allclose([ours["linear/slope"].item(), ours["linear/offset"].item()], [3, 1], atol=1e-2)
