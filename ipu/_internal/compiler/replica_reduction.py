"""Reductions over replicas for tf.distribute."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from ipu._internal.compiler import collectives
from ipu._internal.compiler.function_trace import in_function_trace, reduces_over_replicas
from ipu._internal.thread_values import ThreadValue
from ipu._internal.types import Nest

REDUCTIONS = {
    tf.distribute.ReduceOp.SUM: collectives.cross_replica_sum,
    tf.distribute.ReduceOp.MEAN: collectives.cross_replica_mean,
}


_already_reduced = ThreadValue(False)


def already_reduced() -> AbstractContextManager[bool]:
    """Keeps optimizers from reducing gradients over replicas again, while the context is open."""
    return _already_reduced.replaced_by(True)


def over_axis(reduce_op: tf.distribute.ReduceOp, value: Nest, axis: int | None) -> Any:
    """The sum or mean of each tensor along `axis`, for a later one over replicas; `value` itself if `axis` is None."""
    if axis is None:
        return value
    along = tf.reduce_sum if reduce_op == tf.distribute.ReduceOp.SUM else tf.reduce_mean
    return tf.nest.map_structure(lambda leaf: along(leaf, axis), value)


def reduced(reduce_op: tf.distribute.ReduceOp, value: Nest) -> Any:
    """The sum or mean over replicas of each tensor of `value`, in a function that runs on them; `value` itself
    elsewhere, and within `already_reduced`.

    Raises ValueError for another reduction.
    """
    if reduce_op not in REDUCTIONS:
        raise ValueError(f"Expected reduce_op to be SUM or MEAN. Received: {reduce_op}.")
    if _already_reduced.value or not in_function_trace():
        return value
    reduction = REDUCTIONS[reduce_op]

    def over_replicas(leaf: Any) -> Any:
        if isinstance(leaf, tf.IndexedSlices) and not reduces_over_replicas():
            return leaf  # an optimizer may clip its values
        return reduction(tf.convert_to_tensor(leaf))

    return tf.nest.map_structure(over_replicas, value)


def sums_of_replicas(values: Sequence[Any]) -> list[Any]:
    """The sum over replicas of each tensor, None for None, in a function that a strategy runs on several; else the
    tensors themselves.
    """
    context = tf.distribute.get_replica_context() if reduces_over_replicas() else None
    known = [value for value in values if value is not None]
    if context is None or not known:
        return list(values)
    sums = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, known))
    return [None if value is None else next(sums) for value in values]
