"""Whether a function is being traced in which replicas meet: one of `IPUStrategy.run`, not a step of Keras' `fit`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Traces(threading.local):
    depth = 0


_traces = _Traces()


@contextlib.contextmanager
def function_trace() -> Iterator[None]:
    """A function is traced within whose replicas meet at its reductions."""
    _traces.depth += 1
    try:
        yield
    finally:
        _traces.depth -= 1


def in_function_trace() -> bool:
    """Whether this thread is inside `function_trace`."""
    return _traces.depth > 0
