"""Ctrl-C when a condition holds, not by a clock: a slow machine may not have come so far."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PATIENCE_SECONDS = 300.0
"""Seconds that a test waits for what should happen at once; they never pass where nothing is wrong."""
HANGS_SECONDS = 1200.0
"""Seconds after which a process that a test has started will never end."""
EXITING = 4
"""Flag of a thread that has run to its end: a thread that joins it may continue before the system has removed it."""


def threads_of_system(process: int | str = "self") -> dict[str, str]:
    """Names that the system gives to the threads of a process, by their numbers, but for those that are ending; on
    Linux.
    """
    found = {}
    for folder in Path(f"/proc/{process}/task").glob("*"):
        with suppress(OSError):  # the thread has ended meanwhile
            name, fields = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            if not int(fields.split()[6]) & EXITING:
                found[folder.name] = name
    return found


def living_workers() -> list[str]:
    """Workers of the engine, which should not outlive their call; queues of other tests may have threads."""
    names = [thread.name for thread in threading.enumerate()]
    names += threads_of_system().values()  # also those that Python does not know
    return [name for name in names if name.startswith("worker ")]


def engine_runs() -> bool:
    return bool(living_workers())


def wait_for(condition: Callable[[], bool]) -> bool:
    """Waits until the condition holds, or for a long time; returns whether it does. Time without a core does not
    count.
    """
    left, before = PATIENCE_SECONDS, time.monotonic()
    while not condition():
        if left < 0:
            return False
        time.sleep(0.001)
        before, past = (now := time.monotonic()), before
        left -= min(now - past, 0.1)
    return True


@contextmanager
def acting_when(condition: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Makes another thread act as soon as the condition holds, which must be while the block runs."""
    acted: list[bool] = []
    ended = threading.Event()

    def watch() -> None:
        holds = wait_for(lambda: ended.is_set() or condition())
        if not ended.is_set():  # even if the condition never held, as the block may wait for this
            act()
            acted.append(holds)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        assert acted == [True]


@contextmanager
def interrupted_when(
    condition: Callable[[], bool], interrupt: Callable[[], None] = _thread.interrupt_main
) -> Iterator[None]:
    """Interrupts the block as soon as the condition holds; the block must raise KeyboardInterrupt."""
    # An interruption that comes after the block has ended fails the test, and not the whole run.
    with pytest.raises(KeyboardInterrupt), acting_when(condition, interrupt):
        yield
