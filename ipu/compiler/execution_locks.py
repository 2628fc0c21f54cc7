"""Executions of programs that share variables happen one after the other, whichever threads they are called from.

Each variable has a lock; an execution holds those of all its variables and that of its program, taken in one order. So
threads that train one model lose no step, and whoever looks at a variable sees it as after a whole execution. Variables
whose first program is one have one lock together: a program takes few.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

_ATTRIBUTE = "_ipu_execution_lock"


def execution_lock(variable: Any) -> threading.RLock:
    """The lock of a variable, the same for all programs that have it."""
    return found_lock(variable) or locked_by(variable, threading.RLock())


def found_lock(variable: Any) -> threading.RLock | None:
    """The lock of a variable; None before there is a program with it."""
    return vars(variable).get(_ATTRIBUTE)


def locked_by(variable: Any, lock: threading.RLock) -> threading.RLock:
    """The lock of a variable, which is `lock` if it has none yet."""
    return vars(variable).setdefault(_ATTRIBUTE, lock)


class Execution:
    """A context in which no other thread's execution has one of these variables, or is of the same program.

    Variables of a program have a `lock_holder`: the variable itself, or the one it stands for.
    """

    def __init__(self, variables: Iterable[Any]) -> None:
        own, together = threading.RLock(), threading.RLock()
        self._locks = sorted({own, *(locked_by(each.lock_holder, together) for each in variables)}, key=id)

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
