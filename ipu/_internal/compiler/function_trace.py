"""Marks of what is traced: a function that reduces over replicas, in `IPUStrategy.run`, or a step of Keras' `fit`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ipu._internal.thread_values import ThreadValue

_may_have_replicas: ThreadValue[bool | None] = ThreadValue(None)
"""None outside `function_trace`."""


_replicas_of_step = ThreadValue(1)
_scales_loss = ThreadValue(False)


def function_trace(may_have_replicas: bool = True) -> AbstractContextManager[bool | None]:
    """Traces a function while open. Its reductions synchronise its replicas if it `may_have_replicas`."""
    return _may_have_replicas.replaced_by(may_have_replicas)


def step_trace(replicas: int) -> AbstractContextManager[int]:
    """Traces a step of Keras for so many replicas while open, those of all processes."""
    return _replicas_of_step.replaced_by(replicas)


def replicas_of_step() -> int:
    """The number of replicas of the step of Keras being traced, 1 outside of one."""
    return _replicas_of_step.value


def scaling_loss(dynamically: bool) -> AbstractContextManager[bool]:
    """Traces, while open, a step whose optimizer scales the loss, by a factor that it changes if `dynamically`."""
    return _scales_loss.replaced_by(dynamically)


def scales_loss() -> bool:
    """Whether the optimizer of the step being traced scales the loss by a factor that it changes."""
    return _scales_loss.value


def in_function_trace() -> bool:
    """Whether this thread is inside `function_trace`."""
    return _may_have_replicas.value is not None


def reduces_over_replicas() -> bool:
    """Whether this thread is inside a `function_trace` that may have several replicas."""
    return bool(_may_have_replicas.value)
