"""Summaries of TensorFlow 1 in functions that programs compile: they are left out, and a warning says so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation

v1 = tf.compat.v1
X = np.float32([1, 2])


def summarized(x: tf.Tensor) -> tf.Tensor:
    v1.summary.scalar("loss", tf.reduce_sum(x))
    v1.summary.histogram("weights", x)
    v1.summary.image("image", tf.reshape(x, [1, 1, 2, 1]))
    v1.summary.text("text", tf.strings.as_string(x))
    v1.summary.merge([v1.summary.tensor_summary("tensor", x)])
    return x * 2


def in_branch(x: tf.Tensor) -> tf.Tensor:
    return v1.cond(x[0] > 0, lambda: summarized(x), lambda: x)


def in_loop(x: tf.Tensor) -> tf.Tensor:
    return ipu.loops.repeat(1, summarized, [x])


def outlined(x: tf.Tensor) -> tf.Tensor:
    return ipu.outlined_function(summarized)(x)


def with_factors(x: tf.Tensor) -> tf.Tensor:
    """A custom call, for which functions are rewritten, too."""
    return summarized(tf.linalg.cholesky(tf.linalg.diag(x * x))[0] + tf.stack([0.0, x[1]]))


@pytest.mark.parametrize("function", [summarized, in_branch, in_loop, outlined, with_factors])
def test_a_program_leaves_summaries_out(
    function: Callable[[tf.Tensor], tf.Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            doubled = ipu.ipu_compiler.compile(function, [tf.constant(X)])
        np.testing.assert_allclose(session.run(doubled)[0], X * 2, rtol=1e-6)
    for name in ("loss", "weights", "image", "text", "tensor"):
        assert f"{name}': programs leave out the summaries in them" in caplog.text


def test_a_summary_that_a_program_returns_is_refused() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            returned = ipu.ipu_compiler.compile(lambda: v1.summary.scalar("loss", 1.0))
        with pytest.raises((UnsupportedOperation, tf.errors.OpError), match="ScalarSummary|text"):
            session.run(returned)
