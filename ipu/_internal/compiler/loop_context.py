"""The loop whose body is being traced: how often it will run, where that is known, and its counter."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ipu._internal.types import TensorLike


class _Loops(threading.local):
    trip_counts: tuple[int | None, ...] = ()
    counters: tuple[Any, ...] = ()


_loops = _Loops()


@contextlib.contextmanager
def loop_body(trip_count: int | None, counter: TensorLike) -> Iterator[None]:
    """The body of a loop of `ipu.loops` is traced within; `trip_count` is None where only the data say it.

    `counter` is the tensor, int32[], of the number of iterations before.
    """
    outer = _loops.trip_counts, _loops.counters
    _loops.trip_counts, _loops.counters = (*_loops.trip_counts, trip_count), (*_loops.counters, counter)
    try:
        yield
    finally:
        _loops.trip_counts, _loops.counters = outer


def inside_loop() -> bool:
    """Whether the body of a loop of `ipu.loops` is being traced in this thread."""
    return bool(_loops.trip_counts)


def current_trip_count() -> int | None:
    """How often the innermost loop of `ipu.loops` will run; None outside of one, and where it is not known."""
    return _loops.trip_counts[-1] if _loops.trip_counts else None


def current_counter() -> Any:
    """The counter of the innermost loop of `ipu.loops`, from 0; None outside of one."""
    return _loops.counters[-1] if _loops.counters else None
