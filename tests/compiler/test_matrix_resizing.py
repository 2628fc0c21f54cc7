"""Bicubic and area resizing, for which XLA has no HLO, are TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_image_ops

from ipu._internal.compiler.matrix_resizing import area_weights, cubic_weights
from ipu._internal.compiler.trace import trace_step
from tests.engine.running import fast

SIDES = [(5, 9), (8, 16), (7, 3), (16, 4), (1, 6), (6, 1), (10, 10), (3, 101), (97, 13)]


@pytest.mark.parametrize("kind", ["corners", "centers", "neither", "area"])
def test_weights_are_those_of_tensorflow(kind: str) -> None:
    for size, count in SIDES:
        pixels = np.eye(size, dtype=np.float32)[:, :, None, None]  # an image for each pixel
        if kind == "area":
            expected = tf.raw_ops.ResizeArea(images=pixels, size=(count, 1))
            found = area_weights(size, count)
        else:
            chosen = kind == "corners", kind == "centers"
            expected = tf.raw_ops.ResizeBicubic(
                images=pixels, size=(count, 1), align_corners=chosen[0], half_pixel_centers=chosen[1]
            )
            found = cubic_weights(size, count, *chosen)
        np.testing.assert_allclose(
            found.T, expected[:, :, 0, 0], atol=1e-5 if kind == "area" else 2e-6, err_msg=f"{size} to {count}"
        )


def test_values_and_gradients() -> None:
    def function(x: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = gen_image_ops.resize_bicubic(x, (9, 4), half_pixel_centers=True)
        return y, tape.gradient(y, x, seed), gen_image_ops.resize_area(x, (3, 14))

    x, seed = (np.random.default_rng(0).normal(size=(2, *s, 3)).astype(np.float32) for s in ((5, 7), (9, 4)))
    module = trace_step(function, [tf.TensorSpec(each.shape) for each in (x, seed)]).module
    found, _ = fast(module, [x, seed])
    for ours, theirs in zip(found, function(tf.constant(x), tf.constant(seed)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
