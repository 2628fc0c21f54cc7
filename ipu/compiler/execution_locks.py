"""Executions of programs that share variables happen one after the other, whichever threads they are called from.

Each variable has a lock; an execution holds those of all its variables and that of its program, taken in one order. So
threads that train one model lose no step, and whoever looks at a variable sees it as after a whole execution.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

_ATTRIBUTE = "_ipu_execution_lock"


def execution_lock(variable: Any) -> threading.RLock:
    """The lock of a variable, the same for all programs that have it."""
    found = vars(variable).get(_ATTRIBUTE)
    return vars(variable).setdefault(_ATTRIBUTE, threading.RLock()) if found is None else found


def execution_of(variables: Iterable[Any]) -> Execution:
    """A context in which no other thread's execution has one of these variables."""
    return Execution(variable.execution_lock for variable in variables)


class Execution:
    """A context that holds locks, in one order for all threads; one thread may enter it again."""

    def __init__(self, locks: Iterable[threading.RLock]) -> None:
        self._locks = sorted(set(locks), key=id)

    def __enter__(self) -> None:
        held = 0
        try:
            for lock in self._locks:
                lock.acquire()
                held += 1
        except BaseException:  # an interruption while another thread's execution is waited for
            for lock in self._locks[:held]:
                lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()
