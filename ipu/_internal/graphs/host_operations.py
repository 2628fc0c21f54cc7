"""Operations of a tf.Graph that call Python on the host; a session raises their errors unchanged."""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

MOST_ERRORS = 64
"""Errors kept for sessions that have not raised them yet."""
_TAG = re.compile(r"\[ipu error (\d+)\]")
_errors: OrderedDict[int, BaseException] = OrderedDict()
_numbers = itertools.count()


def building_graph() -> bool:
    """Whether operations are added to a tf.Graph of TensorFlow 1, and not to a function."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def host_operation(
    function: Callable[..., Sequence[np.ndarray]], inputs: Sequence[tf.Tensor], results: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Tensors of the arrays that `function` returns, called in eager mode with the values of `inputs`.

    It is called in each Session.run that needs one of the results. `original_error` gives its errors.
    """

    with tf.device(None), tf.device("/device:CPU:0"):
        made = tf.numpy_function(_called(function), inputs, [each.dtype for each in results])
    tensors = list(made) if isinstance(made, list | tuple) else [made]
    for tensor, spec in zip(tensors, results, strict=True):
        tensor.set_shape(spec.shape)
    return tensors


def host_operation_on_variant(function: Callable[[tf.Tensor], object], variant: tf.Tensor) -> tf.Operation:
    """The same for a function of a tensor of dtype variant, which is no array."""

    def call(value: tf.Tensor) -> tf.Tensor:
        function(value)
        return tf.constant(0)

    with tf.device(None), tf.device("/device:CPU:0"):
        return tf.py_function(_called(call), [variant], tf.int32).op


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in eager mode, with its errors kept for `original_error`."""

    @tf.autograph.experimental.do_not_convert
    def call(*values: Any) -> Any:
        try:
            with context.eager_mode():
                return function(*values)
        except BaseException as error:
            number = next(_numbers)
            _errors[number] = error
            while len(_errors) > MOST_ERRORS:
                _errors.popitem(last=False)
            raise RuntimeError(f"{type(error).__name__}: {error} [ipu error {number}]") from None

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


def original_error(error: tf.errors.OpError) -> BaseException:
    """The error of a host operation from that of the session, or the session's own."""
    found = _TAG.search(str(error.message))
    return _errors.pop(int(found[1]), error) if found else error
