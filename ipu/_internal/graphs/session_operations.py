"""Operations of a tf.Graph that call Python, for all modules above programs: importing this extends the sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.graphs.host_operations import building_graph, called_eagerly, host_operation
from ipu._internal.graphs.session_hooks import install
from ipu._internal.graphs.sessions import programs_of, run_of
from ipu._internal.graphs.variables import Session

__all__ = ["building_graph", "host_operation", "in_eager_or_graph", "session_operation", "variant_operation"]

install()


def variant_operation(function: Callable[..., Any], inputs: Sequence[tf.Tensor], result: tf.TensorSpec) -> tf.Tensor:
    """Calls a function with one result on the host. Tensors may be of dtype variant, which no array can have."""
    with tf.device(None), tf.device("/device:CPU:0"):
        made = tf.py_function(called_eagerly(function), inputs, result.dtype)
    made.set_shape(result.shape)
    return made


def in_eager_or_graph(function: Callable[[], object]) -> tf.Operation:
    """Calls `function` at once outside of a graph. In a graph, returns an operation that calls it in each run."""
    if not building_graph():
        function()
        return tf.no_op()

    def call() -> list[np.ndarray]:
        function()
        return [np.zeros((), np.int32)]

    return host_operation(call, [], [tf.TensorSpec([], tf.int32)])[0].op


def session_operation(function: Callable[[Session], object]) -> tf.Operation:
    """An operation of the default graph that calls `function` with the session that executes it."""
    programs = programs_of(tf.compat.v1.get_default_graph())

    def call(number: np.ndarray) -> list[np.ndarray]:
        function(run_of(number).session)
        return [np.zeros((), np.int32)]

    operation = host_operation(call, [programs.run_number], [tf.TensorSpec([], tf.int32)])[0].op
    programs.operations.add(operation)
    return operation
