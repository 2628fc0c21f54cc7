"""Counts of categories with a static number of bins, for both Keras' CategoryEncoding in a step of the engine."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops.bincount_ops import validate_dense_weights

from ipu._internal.compiler.variables import tracing
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def dense_bincount(
    original: Original,
    inputs: Tensor,
    depth: int,
    binary_output: bool,
    dtype: Any,
    count_weights: Tensor | None = None,
) -> Any:
    """Counts, or 0 and 1, of each of `depth` categories: [depth] for inputs [n], [batch, depth] for [batch, n].

    TensorFlow computes the number of bins from the largest input, even where it can only be `depth`; XLA accepts no
    number that depends on values. Categories from `depth` on are not counted; checks of values refuse what Keras does.
    """
    if not tracing():
        return original(inputs, depth, binary_output, dtype, count_weights)
    categories = inputs if inputs.dtype.is_integer else tf.cast(inputs, tf.int32)
    weights = validate_dense_weights(categories, count_weights, dtype)
    size = tf.constant(depth, categories.dtype)
    counts = tf.raw_ops.DenseBincount(input=categories, size=size, weights=weights, binary_output=binary_output)
    return tf.ensure_shape(counts, [*categories.shape.as_list()[:-1], depth])
