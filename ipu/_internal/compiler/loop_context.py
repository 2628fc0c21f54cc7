"""The loop whose body is being traced: the counter of its iterations."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ipu._internal.types import TensorLike


class _Loops(threading.local):
    counters: tuple[TensorLike, ...] = ()


_loops = _Loops()


@contextlib.contextmanager
def loop_body(counter: TensorLike) -> Iterator[None]:
    """Within, the body of a loop of `ipu.loops` is traced; `counter`, int32[], is the number of iterations before."""
    outer, _loops.counters = _loops.counters, (*_loops.counters, counter)
    try:
        yield
    finally:
        _loops.counters = outer


def current_counter() -> Any:
    """The counter of the innermost loop of `ipu.loops`, from 0; None outside of one."""
    return _loops.counters[-1] if _loops.counters else None
