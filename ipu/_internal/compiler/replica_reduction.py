"""Reductions over replicas for tf.distribute."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ipu._internal.compiler import collectives
from ipu._internal.compiler.function_trace import in_function_trace
from ipu._internal.types import Nest

REDUCTIONS = {
    tf.distribute.ReduceOp.SUM: collectives.cross_replica_sum,
    tf.distribute.ReduceOp.MEAN: collectives.cross_replica_mean,
}


class _Already(threading.local):
    reduced: bool = False


_already = _Already()


@contextlib.contextmanager
def already_reduced() -> Iterator[None]:
    """Within, an optimizer gets gradients already reduced over replicas, and does not reduce them again."""
    outer, _already.reduced = _already.reduced, True
    try:
        yield
    finally:
        _already.reduced = outer


def reduced(reduce_op: tf.distribute.ReduceOp, value: Nest) -> Any:
    """The sum or mean over replicas of each tensor of `value`, in a function that runs on them; elsewhere, and within
    `already_reduced`, `value`.

    Raises ValueError for another reduction.
    """
    if reduce_op not in REDUCTIONS:
        raise ValueError(f"Expected reduce_op to be SUM or MEAN. Received: {reduce_op}.")
    if _already.reduced or not in_function_trace():
        return value
    reduction = REDUCTIONS[reduce_op]
    return tf.nest.map_structure(lambda leaf: reduction(tf.convert_to_tensor(leaf)), value)
