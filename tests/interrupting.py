"""Ctrl-C at a moment that a condition tells, not a clock: a slow machine may not have come so far."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PATIENCE_SECONDS = 120.0
"""So long a test waits for what should happen at once; it is never waited for where nothing is wrong."""


def living_workers() -> list[str]:
    """Workers of the engine, which should not outlive their call; queues of other tests may have threads."""
    names = [thread.name for thread in threading.enumerate()]
    for told in Path("/proc/self/task").glob("*/comm"):  # of threads that Python does not know, on Linux
        with suppress(OSError):  # ended meanwhile
            names.append(told.read_text())
    return [name.strip() for name in names if name.startswith("worker ")]


def engine_runs() -> bool:
    return bool(living_workers())


def wait_for(condition: Callable[[], bool]) -> bool:
    """Returns when it holds, or after a long time; whether it does."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


@contextmanager
def interrupted_when(
    condition: Callable[[], bool], interrupt: Callable[[], None] = _thread.interrupt_main
) -> Iterator[None]:
    """The block is interrupted as soon as the condition holds, and must raise KeyboardInterrupt."""
    held: list[bool] = []
    ended = threading.Event()

    def watch() -> None:
        held.append(wait_for(lambda: ended.is_set() or condition()))
        if not ended.is_set():
            interrupt()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        ended.set()
        watcher.join()
    assert held == [True]
