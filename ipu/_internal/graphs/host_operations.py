"""Operations of a tf.Graph that call Python on the host; extended sessions raise their errors unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from ipu._internal.graphs.errors import kept_error


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
        made = tf.numpy_function(called_eagerly(function), inputs, [each.dtype for each in results])
    tensors = list(made) if isinstance(made, list | tuple) else [made]
    for tensor, spec in zip(tensors, results, strict=True):
        tensor.set_shape(spec.shape)
    return tensors


def called_eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in eager mode, with its errors kept."""

    @tf.autograph.experimental.do_not_convert
    def call(*values: Any) -> Any:
        try:
            with context.eager_mode():
                return function(*values)
        except BaseException as error:
            raise kept_error(error) from None

    return call
