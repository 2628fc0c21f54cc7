"""Calls of tf.function(jit_compile=True) in an IPUStrategy's scope, without `run`: the engine runs them, too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from ipu._internal.function_code import wraps
from ipu._internal.types import Nest

Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
KERAS = frozenset({"keras", "tf_keras", "keras_ext"})
LIBRARIES = KERAS | {"tensorflow"}


def caller_is_library(depth: int) -> bool:
    """Whether the code `depth` calls above the caller of this function belongs to TensorFlow or a Keras."""
    name = sys._getframe(depth + 1).f_globals.get("__name__", "")
    return str(name).partition(".")[0] in LIBRARIES


def install(run: Run) -> None:
    """Sends direct calls to `run(function, args, kwargs)`, which returns NotImplemented to leave them to TensorFlow.

    TensorFlow keeps calls in a tf.function, under a tf.GradientTape and from libraries.
    """
    original = polymorphic_function.Function.__call__
    if getattr(original, "_ipu_installed", False):
        return

    @wraps(original)
    def call(self: polymorphic_function.Function, *args: Nest, **kwargs: Nest) -> Any:
        if (
            self._jit_compile
            and tf.distribute.has_strategy()
            and tf.executing_eagerly()
            and not record.could_possibly_record()
            and not tf.config.functions_run_eagerly()
            and not caller_is_library(1)
        ):
            result = run(self, args, kwargs)
            if result is not NotImplemented:
                return result
        return original(self, *args, **kwargs)

    call._ipu_installed = True
    polymorphic_function.Function.__call__ = call
