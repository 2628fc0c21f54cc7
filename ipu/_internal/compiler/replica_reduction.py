"""Reductions over replicas for tf.distribute."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler import collectives
from ipu._internal.compiler.function_trace import in_function_trace, reduces_over_replicas, replicas_of_step
from ipu._internal.compiler.marks import is_optimizing
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

    Raises ValueError for another reduction, and in a step of Keras on several replicas outside of its optimizer.
    """
    if reduce_op not in REDUCTIONS:
        raise ValueError(f"Expected reduce_op to be SUM or MEAN. Received: {reduce_op}.")
    if _already_reduced.value:
        return value
    if not in_function_trace():
        _refuse_in_steps(value)
        return value
    reduction = REDUCTIONS[reduce_op]

    def over_replicas(leaf: Any) -> Any:
        if isinstance(leaf, tf.IndexedSlices) and not reduces_over_replicas():
            return leaf  # an optimizer may clip its values
        return reduction(tf.convert_to_tensor(leaf))

    return tf.nest.map_structure(over_replicas, value)


def _refuse_in_steps(value: Nest) -> None:
    """Raises ConfigurationError in a step of Keras on several replicas, except for an optimizer's gradients."""
    if replicas_of_step() == 1 or is_optimizing():
        return
    raise ConfigurationError(
        f"Expected Keras models without reductions over replicas: fit, evaluate and predict reduce gradients and "
        f"metrics themselves. Received: one of {tf.nest.flatten(value)[0]} by tf.distribute with {replicas_of_step()} "
        f"replicas. Leave it out, write the training loop in a tf.function for IPUStrategy.run, or set "
        f"auto_select_ipus = 1."
    )


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
