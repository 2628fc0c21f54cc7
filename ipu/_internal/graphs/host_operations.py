"""Operations of a tf.Graph that call Python on the host; a session raises their errors unchanged."""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence

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

    It is called in each Session.run that needs one of the results. `raising_errors` raises its errors.
    """

    def call(*arrays: np.ndarray) -> list[np.ndarray]:
        try:
            with context.eager_mode():
                return list(function(*arrays))
        except BaseException as error:
            number = next(_numbers)
            _errors[number] = error
            while len(_errors) > MOST_ERRORS:
                _errors.popitem(last=False)
            raise RuntimeError(f"{type(error).__name__}: {error} [ipu error {number}]") from None

    with tf.device(None), tf.device("/device:CPU:0"):
        made = tf.numpy_function(tf.autograph.experimental.do_not_convert(call), inputs, [r.dtype for r in results])
    tensors = list(made) if isinstance(made, list | tuple) else [made]
    for tensor, spec in zip(tensors, results, strict=True):
        tensor.set_shape(spec.shape)
    return tensors


def original_error(error: tf.errors.OpError) -> BaseException:
    """The error of a host operation from that of the session, or the session's own."""
    found = _TAG.search(str(error.message))
    return _errors.pop(int(found[1]), error) if found else error
