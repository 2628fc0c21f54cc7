"""Worker threads: how many, and started anew for each call with a caller that stays interruptible.

No thread outlives the call, so there is nothing to shut down at exit and nothing to remake after a fork. The
kernel places new threads better than parked ones; none is ever pinned. There are two ways to make them, each a file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.errors import ConfigurationError, InternalError
from engine.runtime.time_limit import TimeLimit

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 0.4
"""How long an interrupted caller waits for the end of a step before it asks the workers to leave it."""


def usable_cores() -> int:
    """The processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def most_workers() -> int:
    """How many workers may help each other: those without a core would only keep the others waiting."""
    return usable_cores()


def is_worker_count_given() -> bool:
    """Whether NUMBA_NUM_THREADS says how many workers are wanted, even where fewer would do."""
    return bool(os.environ.get("NUMBA_NUM_THREADS", "").strip())


def worker_count() -> int:
    """NUMBA_NUM_THREADS if it is set, but not more than the usable cores, which are the default. Read at each call.

    Raises ConfigurationError if the variable is not a positive number.
    """
    text = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    if not text:
        return usable_cores()
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(
            f"Expected a positive number in NUMBA_NUM_THREADS. Received: {text!r}. "
            f"Nearest legal value: 1; unset it to use all {usable_cores()} cores."
        )
    return min(int(text), most_workers())


def cores_to_spread(workers: int) -> Sequence[int]:
    """The core of each of so many workers; none where the system is to decide.

    New threads often begin on one core, and it takes the system some 5 ms to see it. They are moved to a core each,
    once, and may go on wherever they like; but only where every core gets a worker: elsewhere the system knows better
    which cores are free.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    return cores if workers == len(cores) > 1 else []


Stop = Callable[[bool], None]
"""Asks the workers to end: after their step, or (True) as soon as they can."""


class Watch(Protocol):
    """Somebody who looks after the workers of a call."""

    def first_look(self) -> float:
        """Seconds until the first look."""

    def look(self, threads: list[int]) -> float:
        """Looks at the workers, given by the system's numbers of their threads; returns the seconds until the next."""

    def leaves(self, worker: int, delay: float) -> None:
        """A worker is done; others have kept it from running for so many seconds."""


class CallThreads(Protocol):
    """The threads of one call, none of which exists before it begins."""

    def begin(self) -> None:
        """Starts the threads."""

    def wait(self, seconds: float) -> bool:
        """Whether none of them is at work any longer; waits for that, but not longer than so many seconds."""

    def cancel(self) -> None:
        """Nobody begins who has not begun."""

    def threads(self) -> list[int]:
        """The system's numbers of the threads that have begun."""

    def failure(self) -> BaseException | None:
        """Why a worker failed, or could not start; its error frees the others from waiting."""


def attend(crew: CallThreads, stop: Stop, watch: Watch | None, limit: TimeLimit | None = None) -> None:
    """Returns when all of a crew are done.

    An interruption of the caller (Ctrl-C) calls stop(False), later stop(True) if need be, waits for the workers, and
    is raised again. When the time of `limit` is up stop(True) is called. Raises InternalError when a worker fails.
    """
    try:
        crew.begin()
        # an interruption that is not a signal to this thread does not end a wait
        seconds = POLL_SECONDS if watch is None else watch.first_look()
        while not crew.wait(min(seconds, POLL_SECONDS if limit is None else min(POLL_SECONDS, limit.left()))):
            if limit is not None and limit.left() == 0:
                stop(True)
                limit = None
            elif watch is not None:
                seconds = watch.look(crew.threads())
    except BaseException:
        _leave(crew, stop)
        raise
    failure = crew.failure()
    if failure is not None:
        raise InternalError(f"A worker failed: {failure!r}.") from failure


def _leave(crew: CallThreads, stop: Stop) -> None:
    """After an interruption: returns, or raises what else interrupts, when nobody is at work."""
    patient_until = time.monotonic() + PATIENCE_SECONDS
    latest: BaseException | None = None
    while True:
        try:
            stop(False)
            crew.cancel()
            while not crew.wait(POLL_SECONDS):
                stop(time.monotonic() >= patient_until)
            break
        except BaseException as again:  # somebody who asks twice is not patient
            latest, patient_until = again, 0.0
    if latest is not None:
        raise latest
