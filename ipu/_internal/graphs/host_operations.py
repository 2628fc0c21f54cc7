"""Operations of a tf.Graph that call Python on the host; a session raises their errors unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from ipu._internal.graphs.errors import kept_error
from ipu._internal.graphs.session_hooks import install
from ipu._internal.graphs.sessions import programs_of, run_of
from ipu._internal.graphs.variables import Session

install()


def building_graph() -> bool:
    """Whether operations are added to a tf.Graph of TensorFlow 1, and not to a function."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def host_operation(
    function: Callable[..., Sequence[np.ndarray]], inputs: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Tensors of the arrays that `function` returns, called in eager mode with the values of `inputs`.

    It is called in each Session.run that needs one of the results, which raises its errors.
    """
    with tf.device(None), tf.device("/device:CPU:0"):
        made = tf.numpy_function(_called(function), inputs, [each.dtype for each in results])
    tensors = list(made) if isinstance(made, list | tuple) else [made]
    for tensor, spec in zip(tensors, results, strict=True):
        tensor.set_shape(spec.shape)
    return tensors


def variant_operation(function: Callable[..., Any], inputs: Sequence[tf.Tensor], result: tf.TensorSpec) -> tf.Tensor:
    """Calls a function of tensors on the host, also of dtype variant, which are no arrays, with one result."""
    with tf.device(None), tf.device("/device:CPU:0"):
        made = tf.py_function(_called(function), inputs, result.dtype)
    made.set_shape(result.shape)
    return made


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in eager mode, with its errors kept."""

    @tf.autograph.experimental.do_not_convert
    def call(*values: Any) -> Any:
        try:
            with context.eager_mode():
                return function(*values)
        except BaseException as error:
            raise kept_error(error) from None

    return call


def in_eager_or_graph(function: Callable[[], object]) -> tf.Operation:
    """An operation that calls `function`, in each Session.run of it; it has been called already outside of a graph."""
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
