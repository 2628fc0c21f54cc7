"""Captured gradients equal those of a tape that watches the tensor; contexts end, and tags are used once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu.ipu_strategy import IPUStrategy

backprop, capture = ipu.eager.backprop, ipu.grad_util_ops.capture_upstream_gradients
X = np.random.default_rng(3).normal(size=(3, 4)).astype(np.float32)


def step(tape: tf.GradientTape, x: tf.Tensor, *tags: str) -> Any:
    """The gradient of sin(x**2), summed over tags: 2x cos(x**2) for each, and the captured one is cos(x**2)."""
    with tape:
        tape.watch(x)
        loss = tf.add_n([tf.reduce_sum(tf.sin(capture(x**2, tag))) for tag in tags])
    return tape.gradient(loss, x)


@pytest.mark.parametrize("on_ipu", [True, False])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16])
def test_a_tape_and_a_context_capture(on_ipu: bool, dtype: tf.DType) -> None:
    def both(x: tf.Tensor) -> Any:
        tape = backprop.GradientCaptureTape()
        gradient = step(tape, x, "first", "second")
        with backprop.GradientCaptureContext() as outer:
            step(tf.GradientTape(), x, "first")
            with backprop.GradientCaptureContext() as inner:
                step(tf.GradientTape(), x, "first")
        return gradient, tape.captured_gradients, outer.captured_gradients, inner.captured_gradients

    x = tf.cast(X, dtype)
    function = tf.function(both, jit_compile=True)
    gradient, by_tape, outer, inner = IPUStrategy().run(function, (x,)) if on_ipu else both(x)
    cosine = np.cos(x.numpy().astype("f") ** 2)
    tolerance = {"rtol": 1e-2, "atol": 5e-2} if dtype == tf.float16 else {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(gradient, 4 * X * cosine, **tolerance)
    assert set(by_tape) == {"first", "second"} and set(outer) == set(inner) == {"first"}
    for captured in (*by_tape.values(), *outer.values(), *inner.values()):
        assert captured.dtype == dtype
        np.testing.assert_allclose(captured, cosine, **tolerance)


def test_a_saved_model_has_the_gradient(tmp_path: Path) -> None:
    module = tf.Module()
    module.call = tf.function(lambda x: 3 * capture(x, "first"), input_signature=[tf.TensorSpec([3, 4])])
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(tmp_path), options=options)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = tf.saved_model.load(str(tmp_path)).call(x)
    np.testing.assert_array_equal(tape.gradient(result, x), np.full_like(X, 3))


def test_wrong_uses_are_errors() -> None:
    x = tf.constant(X)
    with pytest.raises(RuntimeError, match="'first' outside of them"):
        step(tf.GradientTape(), x, "first")
    with pytest.raises(ValueError, match="'first' twice"):
        step(backprop.GradientCaptureTape(), x, "first", "first")
    with backprop.GradientCaptureContext(), pytest.raises(ValueError, match="'first' twice"):
        for _ in range(2):
            step(tf.GradientTape(), x, "first")
