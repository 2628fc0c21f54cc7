"""The mark of a traced function that reduces over replicas: in `IPUStrategy.run`, not in a step of Keras' `fit`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ipu._internal.thread_values import ThreadValue

_may_have_replicas: ThreadValue[bool | None] = ThreadValue(None)
"""None outside `function_trace`."""


def function_trace(may_have_replicas: bool = True) -> AbstractContextManager[bool | None]:
    """Traces a function while open. Its reductions synchronise its replicas if it `may_have_replicas`."""
    return _may_have_replicas.replaced_by(may_have_replicas)


def in_function_trace() -> bool:
    """Whether this thread is inside `function_trace`."""
    return _may_have_replicas.value is not None


def reduces_over_replicas() -> bool:
    """Whether this thread is inside a `function_trace` that may have several replicas."""
    return bool(_may_have_replicas.value)
