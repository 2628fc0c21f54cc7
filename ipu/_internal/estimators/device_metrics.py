"""Metrics that the device computes: pairs of a value, which reads variables, and their update."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.graphs.clusters import copy_operations
from ipu._internal.graphs.sessions import READS, WRITERS, reached

v1 = tf.compat.v1


def value_after(update: Any, value: Any) -> tf.Tensor:
    """The value of a metric after its update, in the function that is being traced.

    A copy of the operations that read variables and of those that depend on them. The update's own result may be
    another, as the confusion matrix of a mean IoU.
    """
    value = tf.convert_to_tensor(value)
    needed = set(reached([value.op]))
    copied: dict[tf.Operation, None] = {}
    for each in value.graph.get_operations():  # in order
        if each in needed and any(tensor.dtype == tf.resource or tensor.op in copied for tensor in each.inputs):
            if each.type.startswith(WRITERS) and each.type not in READS:
                return value  # it updates variables itself
            copied[each] = None
    values: dict[int, tf.Tensor] = {}
    with tf.control_dependencies([update]), tf.name_scope("value"):
        copy_operations(list(copied), lambda tensor: values.get(id(tensor), tensor), values, {})
        return tf.identity(values.get(id(value), value))


def kept(value: tf.Tensor, replicas: int) -> tuple[Any, Any]:
    """A metric, as a pair of value and update: the device's latest value, averaged over replicas."""
    value = tf.reduce_mean(tf.cast(value, tf.float32), 0) if replicas > 1 else value
    latest = v1.Variable(
        tf.zeros(value.shape, value.dtype),
        trainable=False,
        collections=[v1.GraphKeys.LOCAL_VARIABLES],
        name="latest_metric",
        use_resource=True,
    )
    return latest.read_value(), latest.assign(value, read_value=False)
