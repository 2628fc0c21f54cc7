"""Counts of tf.compat.v1.metrics.precision_at_k and its like, which are sizes of sets that XLA lacks.

Each has the arguments of TensorFlow's function after the `original`, which is called for sparse labels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.weights_broadcast_ops import assert_broadcastable

from ipu._internal.types import TensorLike


def _count(
    kind: str,
    original: Callable[..., Any],
    labels: Any,
    predictions_idx: TensorLike,
    class_id: TensorLike | None = None,
    weights: TensorLike | None = None,
    **named: Any,
) -> Any:
    """The number of different classes in each row, float64 [...], times the weights."""
    if isinstance(labels, tf.SparseTensor):
        return original(labels, predictions_idx, class_id, weights, **named)
    with tf.name_scope(named.get("name") or kind):
        labels, predictions = (tf.cast(each, tf.int64) for each in (labels, predictions_idx))
        classes, others = (labels, predictions) if kind == "false_negatives" else (predictions, labels)
        chosen = _is_first(classes)
        if class_id is not None:
            chosen &= tf.equal(classes, tf.cast(class_id, tf.int64))
        is_among = tf.reduce_any(tf.equal(classes[..., None], others[..., None, :]), axis=-1)
        chosen &= is_among if kind == "true_positives" else ~is_among
        count = tf.reduce_sum(tf.cast(chosen, tf.float64), axis=-1)
        if weights is None:
            return count
        with tf.control_dependencies([assert_broadcastable(weights, count)]):
            return count * tf.cast(weights, tf.float64)


def _is_first(classes: tf.Tensor) -> tf.Tensor:
    """Whether no element before one of a row [..., k] equals it."""
    size = tf.shape(classes)[-1]
    is_before = tf.range(size)[None, :] < tf.range(size)[:, None]
    return ~tf.reduce_any(tf.equal(classes[..., None], classes[..., None, :]) & is_before, axis=-1)


SET_METRICS = {
    f"_sparse_{kind[:-1]}_at_k": partial(_count, kind)
    for kind in ("false_negatives", "false_positives", "true_positives")
}
"""Replacements of TensorFlow's functions, by name."""
