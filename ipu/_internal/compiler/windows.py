"""Operations on windows and boxes of images that XLA lacks: max_pool_with_argmax, dilation2d, crop_and_resize.

Each function has the arguments of TensorFlow's operation after the `original`, which is called where a shape that it
needs is not known while TensorFlow traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_nn_ops

from ipu._internal.compiler.constant_values import known
from ipu._internal.types import TensorLike


def max_pool_with_argmax(
    original: Callable[..., Any],
    input: TensorLike,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    Targmax: tf.DType = tf.int64,
    include_batch_in_index: bool = False,
    name: str | None = None,
) -> Any:
    """MaxPoolWithArgmax: the first of equal elements, and the number of its place in the image or in the batch."""
    x = tf.convert_to_tensor(input)
    if not x.shape.is_fully_defined() or not x.shape.num_elements():
        return original(x, ksize, strides, padding, Targmax, include_batch_in_index, name)
    with tf.name_scope(name or "MaxPoolWithArgmax") as scope:
        samples, height, width, channels = x.shape.as_list()
        best, places = None, tf.zeros([], tf.int32)
        for window, y, x_of, is_inside in _windows(x, ksize[1:3], strides[1:3], (1, 1), padding):
            place = tf.constant(y * width + x_of, tf.int32)[:, :, None] * channels + tf.range(channels)
            is_better = is_inside if best is None else is_inside & ((window > best) | (places < 0))
            places = tf.where(is_better, place, -1 if best is None else places)
            best = window if best is None else tf.where(is_better, window, best)
        # The values are gathered, so that their gradient goes to these places.
        of_samples = tf.reshape(tf.range(samples), [-1, 1, 1, 1]) * (height * width * channels)
        in_batch = tf.stop_gradient(places + of_samples)
        values = tf.gather(tf.reshape(x, [-1]), in_batch)
        found = in_batch if include_batch_in_index else places
        return gen_nn_ops._MaxPoolWithArgmaxOutput(values, tf.cast(found, Targmax, name=scope))


def dilation2d(
    original: Callable[..., Any],
    input: TensorLike,
    filter: TensorLike,
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
    name: str | None = None,
) -> Any:
    """Dilation2D: the greatest sum of a pixel and the filter's element, whose gradient goes to the first such pair."""
    x, kernel = tf.convert_to_tensor(input), tf.convert_to_tensor(filter)
    if not x.shape.is_fully_defined() or not kernel.shape.is_fully_defined() or not x.shape.num_elements():
        return original(x, kernel, strides, rates, padding, name=name)
    with tf.name_scope(name or "Dilation2D"):
        rows, columns, channels = kernel.shape.as_list()
        elements = tf.reshape(kernel, [-1, channels])
        found = tf.constant(x.dtype.min, x.dtype)
        windows = _windows(x, (rows, columns), strides[1:3], rates[1:3], padding)
        for number, (window, _, _, is_inside) in enumerate(windows):
            each = window + elements[number]
            found = tf.where(is_inside & (each > found), each, found)
        return found


def _windows(
    x: tf.Tensor, sizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: str
) -> Iterator[tuple[tf.Tensor, np.ndarray, np.ndarray, np.ndarray]]:
    """Elements of a window, each with its values [samples, rows, columns, channels] in all windows, its y and x
    [rows, columns], and whether it is inside of the image.
    """
    axes, (height, width) = [], x.shape.as_list()[1:3]
    for length, size, stride, rate in zip((height, width), sizes, strides, rates, strict=True):
        reach = (size - 1) * rate + 1
        count = -(-length // stride) if padding == "SAME" else (length - reach) // stride + 1
        before = max((count - 1) * stride + reach - length, 0) // 2 if padding == "SAME" else 0
        axes.append([np.arange(count) * stride + k * rate - before for k in range(size)])
    for ys in axes[0]:
        rows = tf.gather(x, np.clip(ys, 0, height - 1), axis=1)
        for xs in axes[1]:
            y, x_of = np.meshgrid(ys, xs, indexing="ij")
            is_inside = (y >= 0) & (y < height) & (x_of >= 0) & (x_of < width)
            yield tf.gather(rows, np.clip(xs, 0, width - 1), axis=2), y, x_of, is_inside[:, :, None]


def crop_and_resize(
    original: Callable[..., Any],
    image: TensorLike,
    boxes: TensorLike,
    box_ind: TensorLike,
    crop_size: TensorLike,
    method: str = "bilinear",
    extrapolation_value: float = 0,
    name: str | None = None,
) -> Any:
    """CropAndResize by bilinear interpolation; boxes have no gradient in other methods, but in TensorFlow's kernel."""
    image, boxes = tf.convert_to_tensor(image), tf.convert_to_tensor(boxes)
    size, dimensions = known(crop_size), image.shape[1:3]
    if size is None or not dimensions.is_fully_defined() or method != "bilinear":
        return original(image, boxes, box_ind, crop_size, method, extrapolation_value, name)
    with tf.name_scope(name or "CropAndResize"):
        ends, inside = [], []
        for axis, (count, length) in enumerate(zip(size.tolist(), dimensions.as_list(), strict=True)):
            first, last = boxes[:, axis, None] * (length - 1), boxes[:, axis + 2, None] * (length - 1)
            steps = (last - first) / (count - 1) if count > 1 else tf.zeros_like(first)
            places = first + steps * tf.range(count, dtype=boxes.dtype) if count > 1 else 0.5 * (first + last)
            is_inside = (places >= 0) & (places <= length - 1)
            low = tf.floor(tf.where(is_inside, places, tf.zeros_like(places)))
            high = tf.math.ceil(tf.where(is_inside, places, tf.zeros_like(places)))
            ends.append((tf.cast(low, tf.int32), tf.cast(high, tf.int32), places - low))
            inside.append(is_inside)
        (top, bottom, down), (left, right, across) = ends
        down, across = down[:, :, None, None], across[:, None, :, None]
        sides = [_pixels(image, box_ind, y, left) for y in (top, bottom)]
        rows = [
            side + (_pixels(image, box_ind, y, right) - side) * across
            for side, y in zip(sides, (top, bottom), strict=True)
        ]
        found = rows[0] + (rows[1] - rows[0]) * down
        is_inside = (inside[0][:, :, None] & inside[1][:, None, :])[..., None]
        return tf.where(is_inside, found, tf.constant(extrapolation_value, found.dtype))


def _pixels(image: tf.Tensor, numbers: TensorLike, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The pixels, float32 [boxes, rows, columns, channels], of rows y [boxes, rows] and columns x of images."""
    ones = tf.ones_like(y)[:, :, None] * tf.ones_like(x)[:, None, :]
    number = tf.cast(tf.convert_to_tensor(numbers), tf.int32)[:, None, None]
    return tf.cast(
        tf.gather_nd(image, tf.stack([number * ones, y[:, :, None] * ones, x[:, None, :] * ones], axis=-1)), tf.float32
    )
