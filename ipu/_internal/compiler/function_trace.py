"""Tells whether the traced function reduces over replicas: in `IPUStrategy.run`, not in a step of Keras' `fit`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ipu._internal.thread_values import ThreadValue

_in_function_trace = ThreadValue(False)


def function_trace() -> AbstractContextManager[bool]:
    """Within, a function is traced whose reductions synchronise its replicas."""
    return _in_function_trace.replaced_by(True)


def in_function_trace() -> bool:
    """Whether this thread is inside `function_trace`."""
    return _in_function_trace.value
