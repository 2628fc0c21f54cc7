"""The call of a compiled program inside a tf.function, between steps on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

SCOPE = "ipu_program"
"""The name scope of the program's call, in SavedModels, too."""


def mark_exported(function: Function) -> Function:
    """Marks `function` as one that calls a compiled program itself; returns it."""
    function._ipu_exported = True
    return function


def call_program(
    run: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[tf.Tensor], outputs: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Calls a compiled program inside a tf.function; returns its results, with the shapes of `outputs`."""
    dtypes = [output.dtype for output in outputs]
    with tf.name_scope(SCOPE):
        results = tf.numpy_function(lambda *arrays: run(list(arrays)), tensors, dtypes, stateful=False)
    for tensor, output in zip(results, outputs, strict=True):
        tensor.set_shape(output.shape)
    return results
