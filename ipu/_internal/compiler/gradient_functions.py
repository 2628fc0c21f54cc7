"""The gradient functions of TensorFlow 1's Defun: those of the functions that the compiler gets have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from engine.errors import UnsupportedOperation


def symbolic_gradient(original: Callable[..., Any], input: Any, Tout: Any, f: Any, name: str | None = None) -> Any:
    """SymbolicGradient, or a call of the gradient function that a Defun has.

    Raises UnsupportedOperation if XLA would derive a function that calls a Defun with a gradient function.
    """
    called = _function(f.name)
    if getattr(called, "_grad_func", None) is not None:
        return called._grad_func(*input)
    if inner := _with_gradient_function(called):
        raise UnsupportedOperation(
            f"Expected calls of {inner!r}, a Defun with a grad_func, in no other Defun whose gradient is taken. "
            f"Received: one in {f.name!r}. Write one of them as a Python function, or this one with tf.custom_gradient."
        )
    return original(input, Tout, f, name=name)


def _function(name: str) -> Any:
    """The function of this name in the graph that is being built, or in those around it."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if (found := graph._get_function(name)) is not None:
            return found
        graph = getattr(graph, "outer_graph", None)
    return None


def _with_gradient_function(called: Any) -> str | None:
    """The name of a function that a Defun calls, or that is called there, with a gradient function."""
    for name, inner in getattr(called, "_sub_functions", {}).items():
        if inner._grad_func is not None:
            return name
        if found := _with_gradient_function(inner):
            return found
    return None
