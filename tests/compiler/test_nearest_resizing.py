"""Nearest-neighbour resizing and its gradient, for which XLA has no HLO, are TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_image_ops

from ipu._internal.compiler.nearest_resizing import nearest
from ipu._internal.compiler.trace import trace_step
from tests.engine.running import fast

CASES = [((2, 3, 4, 5), (6, 12)), ((1, 5, 7, 3), (9, 4)), ((2, 6, 1, 1), (3, 5)), ((0, 2, 2, 2), (4, 4))]


@pytest.mark.sample(5)
@pytest.mark.parametrize("corners, centers", [(False, True), (True, False), (False, False)])
@pytest.mark.parametrize("images, size", CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_values_and_gradients(
    images: tuple[int, ...], size: tuple[int, int], corners: bool, centers: bool, dtype: str
) -> None:
    def function(x: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = gen_image_ops.resize_nearest_neighbor(x, tf.constant(size) * 1, corners, centers)
        return y, tape.gradient(y, x, seed)

    rng = np.random.default_rng(0)
    # Whole numbers: bfloat16 holds their sums.
    shapes = images, (images[0], *size, images[3])
    x, seed = (tf.cast(rng.integers(-4, 5, size=shape).astype(np.float32), dtype) for shape in shapes)
    module = trace_step(function, [tf.TensorSpec(each.shape, each.dtype) for each in (x, seed)]).module
    opcodes = {each.opcode for each in module.entry.instructions}
    assert "scatter" not in opcodes
    if size == (6, 12) and not corners:
        assert "gather" not in opcodes
    for found, expected in zip(fast(module, [x.numpy(), seed.numpy()])[0], function(x, seed), strict=True):
        np.testing.assert_array_equal(found.astype(np.float64), tf.cast(expected, tf.float64))


def test_places_are_those_of_tensorflow() -> None:
    """Positions are computed in float32, also where a product is next to a whole number."""
    for size in (1, 2, 3, 7, 10, 49, 101):
        image = tf.range(size, dtype=tf.float32)[None, :, None, None]
        for count in (1, 2, 5, 6, 21, 83, 98, 100, 303):
            for corners, centers in ((False, True), (True, False), (False, False)):
                resized = tf.raw_ops.ResizeNearestNeighbor(
                    images=image, size=(count, 1), align_corners=corners, half_pixel_centers=centers
                )
                np.testing.assert_array_equal(nearest(size, count, corners, centers), resized[0, :, 0, 0])
