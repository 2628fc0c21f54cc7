"""The loop whose body is being traced: the counter of its iterations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from ipu._internal.thread_values import ThreadValue
from ipu._internal.types import TensorLike

_counter: ThreadValue[Any] = ThreadValue(None)


def loop_body(counter: TensorLike | Callable[[], tf.Tensor]) -> AbstractContextManager[Any]:
    """Traces the body of a loop of `ipu.loops`, while the context is open; `counter`, int32[], is the number of past
    iterations.

    It may be a function, called where the counter is used.
    """
    return _counter.replaced_by(counter)


def current_counter() -> Any:
    """The counter of the innermost loop of `ipu.loops`, or pipeline, from 0; None outside of one."""
    return _counter.value() if callable(_counter.value) else _counter.value
