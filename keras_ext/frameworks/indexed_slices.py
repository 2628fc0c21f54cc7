"""Gradients of embeddings as IndexedSlices: rows, and the ids of a batch, which may name a row twice.

Optimizers of Keras 3 update with them. Those of tf_keras clip them, then add the rows of equal ids. Gradients that are
reduced over micro-batches or replicas, or that Keras accumulates, become tensors first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler.function_trace import reduces_over_replicas
from ipu._internal.compiler.marks import in_marked_step
from ipu._internal.compiler.variables import tracing
from keras_ext.frameworks.common import dense
from keras_ext.types import KerasOptimizer
from keras_ext.wrapping import Original

VARIABLE = "SOFTWARE_IPU_EMBEDDING_GRADIENTS"
"""The environment variable for gradients of embeddings in Keras 3: `slices` unless set, or `dense`."""
SUMS = ("gradient_accumulation_steps", "loss_scale_factor")
"""Attributes of optimizers with which Keras 3 adds tensors to gradients, or divides gradients as tensors."""


def taken(optimizer: KerasOptimizer, gradients: Iterable[Any]) -> list[Any]:
    """The gradients for a method of an optimizer: IndexedSlices as they are, or as tensors where they are added."""
    chain: list[Any] = [optimizer]
    while (inner := getattr(chain[-1], "inner_optimizer", None)) is not None:
        chain.append(inner)
    are_added = any(getattr(each, name, None) for each in chain for name in SUMS)
    if in_marked_step() or reduces_over_replicas() or are_added:
        return [dense(each) for each in gradients]
    return list(gradients)


def _are_dense() -> bool:
    """Whether Keras 3 updates with tensors. Raises ConfigurationError for a value that `VARIABLE` does not have."""
    given = os.environ.get(VARIABLE, "").strip() or "slices"
    if given not in ("slices", "dense"):
        raise ConfigurationError(
            f"Expected {VARIABLE} in the environment to be slices (each row that a batch names is a gradient of its "
            f"own, as in Keras 3) or dense (rows of equal ids are added first). Received: {given!r}."
        )
    return given == "dense"


def update_as_chosen(original: Original, optimizer: KerasOptimizer, gradients: Sequence[Any], *arguments: Any) -> Any:
    """Calls Keras 3's method that takes clipped gradients, with tensors if the environment says so."""
    return original(optimizer, [dense(each) for each in gradients] if _are_dense() else gradients, *arguments)


def divide(original: Original, x1: Any, x2: Any) -> Any:
    """Divides in Keras 3: IndexedSlices by a tensor of their shape, without indices that depend on values.

    Keras adds rows where the divisor has zeros or NaN; here all rows are there, others as zeros.
    """
    if not tracing() or not isinstance(x1, tf.IndexedSlices) or isinstance(x2, tf.IndexedSlices):
        return original(x1, x2)
    if len(getattr(x2, "shape", ())) == 0:
        return original(x1, x2)
    x2 = tf.convert_to_tensor(x2)
    is_named = tf.scatter_nd(x1.indices[:, None], tf.ones_like(x1.indices), x2.shape[:1]) > 0
    others = original(tf.zeros_like(x2), x2)  # zeros, and NaN
    others = tf.where(tf.reshape(is_named, [-1, *[1] * (others.shape.rank - 1)]), tf.zeros_like(others), others)
    values = tf.concat([original(x1.values, tf.gather(x2, x1.indices)), others], 0)
    ids = tf.concat([x1.indices, tf.range(x2.shape[0], dtype=x1.indices.dtype)], 0)
    return tf.IndexedSlices(values, ids, x1.dense_shape)


def check_values(original: Original, optimizer: KerasOptimizer, gradients: Iterable[Any]) -> Any:
    """Calls a method that checks whether gradients are finite, with the values of IndexedSlices.

    Keras makes a tensor as large as the variable, where one value of a row named twice stands for both.
    """
    return original(optimizer, _values(gradients))


def norm_of_values(original: Original, gradients: Iterable[Any]) -> Any:
    """Calls a function that sums the squares of gradients, with the values of IndexedSlices.

    Keras adds the squares of equal rows first, in a tensor as large as the variable.
    """
    return original(_values(gradients))


def _values(gradients: Iterable[Any]) -> list[Any]:
    if not tracing():
        return list(gradients)
    return [each.values if isinstance(each, tf.IndexedSlices) else each for each in gradients]
