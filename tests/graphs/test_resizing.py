"""Images in programs of TensorFlow 1, whose shapes may contain Dimensions, are resized as by TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests import forking

v1 = tf.compat.v1
X = np.random.default_rng(1).normal(size=(2, 4, 6, 3)).astype(np.float32)
FUNCTIONS = (v1.image.resize_bilinear, v1.image.resize_nearest_neighbor, v1.image.resize_bicubic)


def resized(x: tf.Tensor) -> list[Any]:
    """Values, and gradients where TensorFlow has them; some sides are multiples of the image's, others are not."""
    results: list[Any] = [v1.image.resize_area(x, size) for size in ((8, 12), (3, 5))]
    for function in FUNCTIONS:
        for size in ((8, 12), (5, 9)):
            y = function(x, size)
            results += [y, *tf.gradients(y * tf.reshape(tf.cast(tf.range(tf.size(y)) % 7, y.dtype), y.shape), x)]
    return results


def test_resizing_is_that_of_tensorflow() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, X.shape)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            program = ipu.ipu_compiler.compile(resized, [x])
        found, expected = session.run([program, resized(x)], {x: X})
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def with_dimensions() -> None:
    v1.disable_v2_behavior()
    test_resizing_is_that_of_tensorflow()


def test_shapes_of_version_1() -> None:
    status, output = forking.run(with_dimensions)
    assert status == 0, output[-3000:]
