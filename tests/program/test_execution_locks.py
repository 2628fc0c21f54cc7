"""The locks of executions are taken and released together, even if an interruption comes between."""

from __future__ import annotations

import gc
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from engine.runtime.execution_locks import Execution, execution_lock, holding, while_waiting
from tests.interrupting import PATIENCE_SECONDS


def variables(count: int) -> list[Any]:
    """Stand-ins for variables, each with a lock of its own."""
    made = [SimpleNamespace() for _ in range(count)]
    for each in made:
        each.lock_holder = each
        execution_lock(each)
    return made


def is_held(lock: Any) -> bool:
    """Whether another thread would wait for the lock."""
    free: list[bool] = []

    def take() -> None:
        if lock.acquire(blocking=False):
            free.append(True)
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return not free


def test_all_are_held_within_and_none_after() -> None:
    execution = Execution(variables(3))
    assert len(execution._locks) == 4
    assert execution.alone(lambda: [is_held(lock) for lock in execution._locks]) == [True] * 4
    assert not any(map(is_held, execution._locks))
    with pytest.raises(OSError, match="disk full"):
        execution.alone(fail)
    assert not any(map(is_held, execution._locks))


def fail() -> None:
    raise OSError("disk full")


def test_interruptions_at_any_moment_leave_no_lock_held() -> None:
    """A timer repeatedly interrupts executions while locks are taken, held and released."""
    execution = Execution(variables(20))
    interrupted = 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # an interruption in its callbacks is never raised
    try:
        for number in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * number)
                for _ in range(1000):
                    execution.alone(lambda: None)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
                owned = [lock for lock in execution._locks if lock._is_owned()]
                assert not owned
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert interrupted > 20


def test_a_thread_has_something_to_do_while_it_waits() -> None:
    lock = threading.RLock()
    calls: list[int] = []
    waiting, had = threading.Event(), threading.Event()

    def meanwhile() -> None:
        calls.append(1)
        waiting.set()

    def look() -> None:
        with while_waiting(meanwhile), holding(lock):
            had.set()

    thread = threading.Thread(target=look)
    with holding(lock):
        thread.start()
        assert waiting.wait(PATIENCE_SECONDS)
        assert not had.is_set()
    thread.join()
    assert had.is_set() and not is_held(lock)
    assert holding(lock) is lock, "other threads only wait"
