"""Bicubic and area resizing as two products with constant matrices. XLA has no HLO for these, nor for the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.smart_cond import smart_constant_value

from ipu._internal.types import TensorLike

Original = Callable[..., Any]
STEPS = 1024
"""Distances between two pixels for which TensorFlow has weights."""


def bicubic(
    original: Original,
    images: TensorLike,
    size: TensorLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    name: str | None = None,
) -> Any:
    """ResizeBicubic of [n, height, width, channels], float32; `original` where sizes are not known."""
    if not (align_corners and half_pixel_centers):
        made = _resized(images, size, lambda a, b: cubic_weights(a, b, align_corners, half_pixel_centers), name)
        if made is not None:
            return made
    return original(images, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers, name=name)


def area(
    original: Original, images: TensorLike, size: TensorLike, align_corners: bool = False, name: str | None = None
) -> Any:
    """ResizeArea of [n, height, width, channels], float32; `original` where sizes are not known, or with corners."""
    made = None if align_corners else _resized(images, size, area_weights, name)
    return original(images, size, align_corners=align_corners, name=name) if made is None else made


def known_shape(images: tf.Tensor) -> list[Any]:
    """The four dimensions, integers also where those of tensors are the Dimensions of version 1, or None."""
    return list(images.shape.with_rank(4).as_list())


def known_size(size: TensorLike) -> list[Any]:
    """Height and width, None where TensorFlow cannot compute them while it traces."""
    sizes = smart_constant_value(tf.convert_to_tensor(size, tf.int32))
    return [None, None] if sizes is None else [int(each) for each in sizes]


def coordinates(size: int, count: int, corners: bool, centers: bool) -> np.ndarray:
    """Position of each of `count` resized elements, or of its centre, along a side: float32 [count], as TensorFlow
    rounds.
    """
    scale = np.float32((size - 1) / (count - 1) if corners and count > 1 else size / count)
    return (np.arange(count, dtype=np.float32) + np.float32(0.5 if centers else 0.0)) * scale


def products(images: tf.Tensor, by_rows: np.ndarray, by_columns: np.ndarray) -> tf.Tensor:
    """Images of [n, height, width, channels] by matrices [new height, height] and [new width, width]."""
    half = tf.einsum("ah,nhwc->nawc", tf.constant(by_rows, images.dtype), images)
    return tf.einsum("bw,nawc->nabc", tf.constant(by_columns, images.dtype), half)


def cubic_weights(size: int, count: int, corners: bool, centers: bool) -> np.ndarray:
    """The weights, float32 [count, size], of the elements of a side in each of `count` interpolated ones."""
    at = coordinates(size, count, corners, centers) - np.float32(0.5 if centers else 0.0)
    first = np.floor(at).astype(np.int64)
    step = np.rint((at - first.astype(np.float32)) * np.float32(STEPS)) / STEPS
    weights = np.zeros((count, size))
    for offset, distance in ((-1, 1 + step), (0, step), (1, 1 - step), (2, 2 - step)):
        place = np.clip(first + offset, 0, size - 1)
        # Keys' kernel leaves out elements outside; the older one repeats the edge.
        inside = place == first + offset if centers else True
        np.add.at(weights, (np.arange(count), place), np.where(inside, _cubic(distance, -0.5 if centers else -0.75), 0))
    return (weights / weights.sum(1, keepdims=True) if centers else weights).astype(np.float32)


def area_weights(size: int, count: int) -> np.ndarray:
    """The weights, float32 [count, size], of the elements of a side in the mean of each of `count` intervals."""
    scale = float(np.float32(size / count))
    begins = np.arange(count)[:, None] * scale
    elements = np.arange(int(np.ceil(count * scale)) + 1)
    shares = np.clip(np.minimum(elements + 1, begins + scale) - np.maximum(elements, begins), 0, None) / scale
    weights = np.zeros((count, size))
    np.add.at(weights.T, np.minimum(elements, size - 1), shares.T)
    return weights.astype(np.float32)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The kernel of cubic convolution at distances from 0 to 2."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, far)


def _resized(
    images: TensorLike, size: TensorLike, weights: Callable[[int, int], np.ndarray], name: str | None
) -> tf.Tensor | None:
    images = tf.convert_to_tensor(images)
    sides, sizes = known_shape(images)[1:3], known_size(size)
    if not all([*sides, *sizes]):
        return None
    by_rows, by_columns = (weights(a, b) for a, b in zip(sides, sizes, strict=True))
    with tf.name_scope(name or "Resize"):
        return products(tf.cast(images, tf.float32), by_rows, by_columns)
