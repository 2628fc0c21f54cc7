"""Functions that hold a compiled program between steps on the host: what exports return, and loaded signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

SCOPE = "ipu_program"
"""The name scope of the program's call, in SavedModels, too."""


def mark_exported(function: Function) -> Function:
    """Notes that `function` calls a compiled program by itself."""
    function._ipu_exported = True
    return function


def call_program(
    run: Callable[[list[np.ndarray]], list[np.ndarray]], tensors: Sequence[tf.Tensor], outputs: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """The results of a compiled program, inside a tf.function."""
    dtypes = [output.dtype for output in outputs]
    with tf.name_scope(SCOPE):
        results = tf.numpy_function(lambda *arrays: run(list(arrays)), tensors, dtypes, stateful=False)
    for tensor, output in zip(results, outputs, strict=True):
        tensor.set_shape(output.shape)
    return results


def exported_function(function: Any) -> Callable[..., Any] | None:
    """What runs the exported program in `function` on the engine and the steps around it on the host.

    The function itself if it is what an export returned; for a signature of a SavedModel one made of its graph. None
    for all other functions.
    """
    if isinstance(function, Function):
        return function if getattr(function, "_ipu_exported", False) else None
    if not isinstance(function, ConcreteFunction):
        return None
    if not hasattr(function, "_ipu_exported"):
        from ipu._internal.serving.loaded_signatures import (
            running,  # loads what compiles: not before there is such a function
        )

        function._ipu_exported = running(function)
    return function._ipu_exported
