"""Executions of programs that share variables are serialised, whichever threads they are called from.

An execution acquires the locks of all its variables and of its program, always in the same order. So threads that train
one model lose no step, and a reader of a variable sees the value after a whole execution. Variables whose first program
is the same share one lock, so a program acquires few.

An execution may wait for another thread, for example for a callback that takes the results of its steps. If that thread
waits for a lock of the execution, it calls a function meanwhile that lets the execution go on (`while_waiting`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_ATTRIBUTE = "_ipu_execution_lock"
POLL_SECONDS = 5e-4
"""Seconds between attempts to take a lock, when Python handles signals."""


class _Thread(threading.local):
    """The function that this thread calls repeatedly while it waits for a lock; None where it only waits."""

    meanwhile: Callable[[], object] | None = None


_thread = _Thread()


@contextlib.contextmanager
def while_waiting(meanwhile: Callable[[], object]) -> Iterator[None]:
    """Calls `meanwhile` repeatedly whenever this thread waits for another thread's execution inside the context."""
    outer, _thread.meanwhile = _thread.meanwhile, meanwhile
    try:
        yield
    finally:
        _thread.meanwhile = outer


def holding(lock: threading.RLock) -> contextlib.AbstractContextManager[Any]:
    """A context that holds the lock of a variable or program."""
    # The lock's own context is C code, which Ctrl-C cannot leave half entered or half left.
    return lock if _thread.meanwhile is None else _Waiting(lock, _thread.meanwhile)


class _Waiting:
    """A context that holds a lock, and calls a function repeatedly while it waits for the lock."""

    def __init__(self, lock: threading.RLock, meanwhile: Callable[[], object]) -> None:
        self._lock, self._meanwhile = lock, meanwhile

    def __enter__(self) -> None:
        while not self._lock.acquire(timeout=POLL_SECONDS):
            self._meanwhile()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def execution_lock(variable: object) -> threading.RLock:
    """The lock of a variable, which all programs that have the variable share."""
    return found_lock(variable) or locked_by(variable, threading.RLock())


def found_lock(variable: object) -> threading.RLock | None:
    """The lock of a variable; None before there is a program with it."""
    return vars(variable).get(_ATTRIBUTE)


def locked_by(variable: object, lock: threading.RLock) -> threading.RLock:
    """The lock of a variable, which is `lock` if it has none yet."""
    return variable.__dict__.setdefault(_ATTRIBUTE, lock)


class Execution:
    """Calls functions while no other thread executes the same program, or one with any of these variables.

    The `lock_holder` of a variable is the variable itself, or the one of which it is an alias.
    """

    def __init__(self, variables: Iterable[Any]) -> None:
        own, together = threading.RLock(), threading.RLock()
        self._locks = sorted({own, *(locked_by(each.lock_holder, together) for each in variables)}, key=id)

    def alone(self, run: Callable[[], T]) -> T:
        """Result of `run`, called with all locks held. They are released however it ends."""
        return _holding_all(self._locks, run)


def _holding_all(locks: list[threading.RLock], run: Callable[[], T]) -> T:
    # Nested contexts of single locks: Ctrl-C may come between any two lines of a context written in Python.
    if not locks:
        return run()
    with holding(locks[0]):
        return _holding_all(locks[1:], run)
