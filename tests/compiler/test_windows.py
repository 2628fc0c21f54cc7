"""Windows and boxes of images, whose operations XLA lacks, and their gradients, beside TensorFlow's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu.ipu_strategy import IPUStrategy
from tests.compiler.test_segments import check

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.normal(size=(2, 7, 6, 3)).astype(np.float32)
WITH_EQUAL = IMAGES.round()


@pytest.mark.sample(3)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "strides"), [(2, 2), ((3, 2), (2, 1)), (5, 3)])
def test_greatest_elements_and_their_places(padding: str, size: Any, strides: Any) -> None:
    def function(x: tf.Tensor) -> list[tf.Tensor]:
        of_images = tf.nn.max_pool_with_argmax(x, size, strides, padding)
        values, places = tf.nn.max_pool_with_argmax(x, size, strides, padding, include_batch_in_index=True)
        unpooled = tf.scatter_nd(tf.reshape(places, [-1, 1]), tf.reshape(values, [-1]), [tf.size(x, tf.int64)])
        return [*of_images, values, places, unpooled]

    check(function, IMAGES)
    check(lambda x: function(x)[:2], WITH_EQUAL)
    of_batch = IMAGES, size, strides, padding, "NHWC", tf.int32, True
    check(lambda _: list(tf.nn.max_pool_with_argmax(*of_batch)), IMAGES, gradients=False)


def test_special_numbers_in_windows() -> None:
    x = np.where(GENERATOR.random(IMAGES.shape) < 0.3, np.float32(np.nan), IMAGES)
    x = np.where(GENERATOR.random(IMAGES.shape) < 0.5, np.float32(-np.inf), x)
    check(lambda x: list(tf.nn.max_pool_with_argmax(x, 3, 2, "SAME")), x, gradients=False)
    whole = (IMAGES * 9).astype(np.int32)
    check(lambda x: list(tf.nn.max_pool_with_argmax(x, 2, 2, "SAME")), whole, gradients=False)


@pytest.mark.sample(3)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("strides", "rates"), [((1, 1), (1, 1)), ((2, 3), (1, 1)), ((1, 1), (2, 1)), ((2, 1), (1, 2))])
def test_dilation_and_erosion(padding: str, strides: Any, rates: Any) -> None:
    def function(x: tf.Tensor, kernel: tf.Tensor) -> list[tf.Tensor]:
        given = [1, *strides, 1], padding, "NHWC", [1, *rates, 1]
        return [tf.nn.dilation2d(x, kernel, *given), tf.nn.erosion2d(x, kernel, *given)]

    kernel = GENERATOR.normal(size=(3, 2, 3)).astype(np.float32)
    check(function, IMAGES, kernel)
    check(function, WITH_EQUAL, np.zeros_like(kernel))
    check(function, WITH_EQUAL.astype(np.int32), np.ones(kernel.shape, np.int32), gradients=False)


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [[4, 5], [1, 3], [1, 1]])
def test_boxes(size: list[int]) -> None:
    boxes = [[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.83], [0.51, 0.52, 1.2, 1.1], [0.9, 0.8, 0.13, -0.2], [0.5, 0.4, 0.5, 0.4]]

    def function(x: tf.Tensor, boxes: tf.Tensor, numbers: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.image.crop_and_resize(x, boxes, numbers, size),
            tf.image.crop_and_resize(tf.nn.relu(x), boxes, numbers, size, extrapolation_value=-2.0),
        ]

    given = np.array(boxes, np.float32), np.array([0, 1, 0, 1, 1], np.int32)
    check(function, IMAGES, *given, tolerance=1e-4)
    check(lambda x, b, n: function(x, b, n)[:1], (IMAGES * 9).astype(np.uint8), *given, tolerance=1e-4, gradients=False)


def test_boxes_by_nearest_pixels_are_refused() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], [0], [3, 3], "nearest")

    with IPUStrategy().scope() as strategy, pytest.raises(UnsupportedOperation, match="CropAndResize"):
        strategy.run(tf.function(function, jit_compile=True), (tf.constant(IMAGES),))
