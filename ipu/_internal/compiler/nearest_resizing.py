"""Nearest-neighbour resizing that repeats each pixel, and its gradient, as operations that compile to fast HLO.

XLA's kernel gathers a window for each pixel, each by an index of its own, and XLA has no kernel for the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.compiler.matrix_resizing import Original, coordinates, known_shape, known_size, products
from ipu._internal.types import TensorLike

Sizes = Sequence[Any]
"""Sizes of sides, None for those that are not known."""


def nearest_neighbor(
    original: Original,
    images: TensorLike,
    size: TensorLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    name: str | None = None,
) -> Any:
    """ResizeNearestNeighbor of [n, height, width, channels]; `original` where pixels are not repeated equally."""
    images = tf.convert_to_tensor(images)
    samples, *sides, channels = known_shape(images)
    sizes = known_size(size)
    places = _places(sides, sizes, align_corners, half_pixel_centers)
    if places is None or channels is None or not _are_repeated(places, sides):
        return original(images, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers, name=name)
    (rows, columns), (new_rows, new_columns) = sides, sizes
    batch = tf.shape(images)[0] if samples is None else samples
    with tf.name_scope(name or "ResizeNearestNeighbor"):
        repeated = [batch, rows, new_rows // rows, columns, new_columns // columns, channels]
        return tf.reshape(
            tf.broadcast_to(images[:, :, None, :, None, :], repeated), [batch, new_rows, new_columns, channels]
        )


def nearest_neighbor_gradient(
    original: Original,
    grads: TensorLike,
    size: TensorLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    name: str | None = None,
) -> Any:
    """ResizeNearestNeighborGrad of floats [n, height, width, channels]; `original` where shapes are not known.

    16-bit floats are summed in float32. Where pixels are not repeated equally, sums are products with constant
    matrices.
    """
    grads = tf.convert_to_tensor(grads)
    sides = known_size(size)
    places = _places(sides, known_shape(grads)[1:3], align_corners, half_pixel_centers)
    if places is None or known_shape(grads)[3] is None or not grads.dtype.is_floating:
        return original(grads, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers, name=name)
    with tf.name_scope(name or "ResizeNearestNeighborGrad"):
        wide = tf.cast(grads, tf.float32) if grads.dtype.size < 4 else grads
        return tf.cast(_summed(wide, sides, places), grads.dtype)


def nearest(size: int, count: int, corners: bool, centers: bool) -> np.ndarray:
    """The element of a side, int64 [count], that each of `count` resized ones is, in the arithmetic of float32."""
    at = coordinates(size, count, corners, centers)
    first = np.floor(at)  # just below 0.5, `at` + 0.5 would be rounded up to 1
    return np.minimum(first + (at - first >= 0.5) if corners else first, size - 1).astype(np.int64)


def _places(sides: Sizes, sizes: Sizes, corners: bool, centers: bool) -> list[np.ndarray] | None:
    """The `nearest` of rows and columns; None for sizes that are unknown, zero, or refused by TensorFlow."""
    if (corners and centers) or not all([*sides, *sizes]):
        return None
    return [nearest(int(a), int(b), corners, centers) for a, b in zip(sides, sizes, strict=True)]


def _summed(grads: tf.Tensor, sides: Sizes, places: list[np.ndarray]) -> tf.Tensor:
    """The sums, [n, *sides, channels], of the rows and columns at the same place."""
    rows, columns = sides
    if _are_repeated(places, sides):
        height, width = (len(each) // side for each, side in zip(places, sides, strict=True))
        samples, _, _, channels = known_shape(grads)
        batch = tf.shape(grads)[0] if samples is None else samples
        return tf.reduce_sum(tf.reshape(grads, [batch, rows, height, columns, width, channels]), axis=[2, 4])
    by_rows, by_columns = (np.equal(np.arange(side)[:, None], each) for each, side in zip(places, sides, strict=True))
    return products(grads, by_rows, by_columns)


def _are_repeated(places: list[np.ndarray], sides: Sizes) -> bool:
    """Whether each element of both sides is there the same number of times, in order."""
    return all(
        len(each) % side == 0 and np.array_equal(each, np.repeat(np.arange(side), len(each) // side))
        for each, side in zip(places, sides, strict=True)
    )
