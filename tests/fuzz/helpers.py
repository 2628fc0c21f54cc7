"""Functions that lines of random programs call besides TensorFlow's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

__all__ = ["clamped_start", "gradient", "repeat", "scalar_loss", "tame", "tokens", "xla"]


def tame(x: tf.Tensor) -> tf.Tensor:
    """Clips to -4 to 4, with 1 where x is not finite."""
    four = tf.cast(4, x.dtype)
    return tf.where(tf.math.is_finite(x), tf.clip_by_value(x, -four, four), tf.ones_like(x))


def gradient(function: Callable[..., tf.Tensor], which: int, upstream: tf.Tensor, *operands: tf.Tensor) -> tf.Tensor:
    """The gradient of the function for one of its operands."""
    with tf.GradientTape() as tape:
        tape.watch(operands[which])
        y = function(*operands)
    found = tape.gradient(y, operands[which], upstream, tf.UnconnectedGradients.ZERO)
    return tf.convert_to_tensor(found)


def repeat(trips: Any, body: Callable[..., tf.Tensor], x: tf.Tensor, most: int = 6) -> tf.Tensor:
    """A loop of at most `most` trips; `trips` may be a tensor, and the body gets the number of its trip."""
    trips = tf.cast(trips, tf.int32)
    _, x = tf.while_loop(lambda i, _: i < trips, lambda i, x: (i + 1, body(i, x)), (0, x), maximum_iterations=most)
    return x


def clamped_start(index: tf.Tensor, size: int) -> tf.Tensor:
    """A legal index in a dimension, made from any number."""
    return tf.clip_by_value(tf.cast(index, tf.int32), 0, max(size - 1, 0))


def tokens(x: tf.Tensor, count: int) -> tf.Tensor:
    """Indices below `count`, out of any integers."""
    return tf.math.floormod(tf.cast(x, tf.int32), max(count, 1))


def scalar_loss(results: Sequence[tf.Tensor]) -> tf.Tensor:
    """A sum over all floats, in f32, that no large value can dominate."""
    floats = [tf.cast(tame(r), tf.float32) for r in results if r.dtype.is_floating]
    return tf.add_n([tf.constant(0.0), *(tf.reduce_sum(tf.sin(f)) for f in floats)])
