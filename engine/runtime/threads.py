"""Worker threads: their number, and a thread pool for each call, whose caller stays interruptible.

No thread of a pool outlives its call, so there is nothing to shut down at exit and nothing to restart after a fork. The
kernel schedules new threads better than parked ones; none is ever pinned. There are two implementations, a file each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.errors import ConfigurationError, InternalError
from engine.machine_code.cores import allowed_cores, full_cores, quota
from engine.runtime.time_limit import TimeLimit

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 0.4
"""Seconds for which an interrupted caller waits for the end of a step before it asks the workers to leave it."""


def usable_cores() -> int:
    """Number of cores on which this process has workers by default: one for each core that is as fast as most.

    Threads that share a core share its arithmetic units, too. A container's quota counts as so many cores: with more
    workers, the system stops all of them until the next period.
    """
    return min(len(full_cores()), quota())


def most_workers() -> int:
    """The largest number of workers that run at the same time: those without a core would only delay the others."""
    return min(len(allowed_cores()), quota())


def is_worker_count_given() -> bool:
    """Whether NUMBA_NUM_THREADS sets the number of workers, even where fewer would do."""
    return bool(os.environ.get("NUMBA_NUM_THREADS", "").strip())


def worker_count() -> int:
    """NUMBA_NUM_THREADS if it is set, but not more than the logical cores; else the usable cores. Read at each call.

    Raises ConfigurationError if the variable is not a positive number.
    """
    text = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    if not text:
        return usable_cores()
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(
            f"Expected a positive number in NUMBA_NUM_THREADS. Received: {text!r}. "
            f"Nearest legal value: 1; unset it to use {usable_cores()} cores."
        )
    return min(int(text), most_workers())


def cores_to_spread(workers: int) -> Sequence[int]:
    """The core of each of `workers` workers; empty where the scheduler is to decide.

    New threads often begin on one core, and the scheduler takes some 5 ms to spread them. They are moved to a core
    each, once, and not pinned; but only where every core gets a worker: otherwise the scheduler knows better which
    cores are free.
    """
    cores = full_cores() if hasattr(os, "sched_setaffinity") else ()
    return cores if workers == len(cores) > 1 else ()


Stop = Callable[[bool], None]
"""Asks the workers to end: after their step, or (True) as soon as they can."""


class Watch(Protocol):
    """A monitor of the workers of a call."""

    def first_look(self) -> float:
        """Seconds until the first call of `look`."""

    def look(self, threads: list[int]) -> float:
        """Inspects the workers, given by kernel thread ids; returns the seconds until the next call."""

    def leaves(self, worker: int, delay: float) -> None:
        """Records that a worker is done; other threads kept it from running for `delay` seconds."""


class CallThreads(Protocol):
    """The threads of one call, none of which exists before it begins."""

    def begin(self) -> None:
        """Starts the threads."""

    def wait(self, seconds: float) -> bool:
        """Waits at most `seconds` seconds for all threads to end; returns whether they have ended."""

    def cancel(self) -> None:
        """Keeps threads that have not begun from beginning."""

    def threads(self) -> list[int]:
        """Kernel thread ids of the threads that have begun."""

    def failure(self) -> BaseException | None:
        """The error of a worker that failed or could not start; it releases the others from their barriers."""


def attend(pool: CallThreads, stop: Stop, watch: Watch | None, limit: TimeLimit | None = None) -> None:
    """Starts the threads of a pool and returns when all are done.

    An interruption of the caller (Ctrl-C) calls stop(False), later stop(True) if need be, waits for the workers, and
    is raised again. When the time of `limit` is up stop(True) is called. Raises InternalError when a worker fails.
    """
    try:
        pool.begin()
        # an interruption that is not a signal to this thread does not end a wait
        seconds = POLL_SECONDS if watch is None else watch.first_look()
        while not pool.wait(min(seconds, POLL_SECONDS if limit is None else min(POLL_SECONDS, limit.left()))):
            if limit is not None and limit.left() == 0:
                stop(True)
                limit = None
            elif watch is not None:
                seconds = watch.look(pool.threads())
    except BaseException:
        _leave(pool, stop)
        raise
    failure = pool.failure()
    if failure is not None:
        raise InternalError(f"A worker failed: {failure!r}.") from failure


def _leave(pool: CallThreads, stop: Stop) -> None:
    """Waits after an interruption until no worker runs, then returns or raises a later interruption."""
    patient_until = time.monotonic() + PATIENCE_SECONDS
    latest: BaseException | None = None
    while True:
        try:
            stop(False)
            pool.cancel()
            while not pool.wait(POLL_SECONDS):
                stop(time.monotonic() >= patient_until)
            break
        except BaseException as again:  # a second interruption ends the patience
            latest, patient_until = again, 0.0
    if latest is not None:
        raise latest
