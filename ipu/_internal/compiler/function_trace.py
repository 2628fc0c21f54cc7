"""Tells whether the traced function reduces over replicas: in `IPUStrategy.run`, not in a step of Keras' `fit`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Traces(threading.local):
    depth = 0


_traces = _Traces()


@contextlib.contextmanager
def function_trace() -> Iterator[None]:
    """Within, a function is traced whose reductions synchronise its replicas."""
    _traces.depth += 1
    try:
        yield
    finally:
        _traces.depth -= 1


def in_function_trace() -> bool:
    """Whether this thread is inside `function_trace`."""
    return _traces.depth > 0
