"""Worker threads: how many, and started anew for each call with a caller that stays interruptible.

No thread outlives the call, so there is nothing to shut down at exit and nothing to remake after a fork. The
kernel places new threads better than parked ones; none is ever pinned.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from engine.errors import ConfigurationError, InternalError

POLL_SECONDS = 0.1


def usable_cores() -> int:
    """The processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count() -> int:
    """NUMBA_NUM_THREADS if it is set, else the usable cores. Read at each call.

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
    return int(text)


class _Crew:
    """The threads of one call. The first starts the others, as signals only ever reach the calling thread."""

    def __init__(self, work: Callable[[int], None], workers: int, abort: Callable[[], None]) -> None:
        self._work = work
        self._abort = abort
        self._lock = threading.Lock()
        self._begun = self._cancelled = False
        self._finished = threading.Event()
        self._members = [
            threading.Thread(target=self._run, args=(worker,), name=f"worker {worker}") for worker in range(workers)
        ]
        self.failures: list[BaseException] = []

    def _run(self, worker: int) -> None:
        if worker:
            self._guarded(worker)
            return
        with self._lock:
            self._begun = not self._cancelled
        if self._begun:
            try:
                self._lead()
            finally:
                self._finished.set()

    def _lead(self) -> None:
        started = []
        try:
            for member in self._members[1:]:
                member.start()
                started.append(member)
        except RuntimeError as failure:
            self._fail(failure)
        else:
            self._guarded(0)
        for member in started:
            member.join()

    def _guarded(self, worker: int) -> None:
        try:
            self._work(worker)
        except BaseException as failure:  # handed to the caller, who raises it
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self.failures.append(failure)
        self._abort()

    def run(self) -> None:
        self._members[0].start()
        # an interruption that is not a signal to this thread does not end a wait
        while not self._finished.wait(POLL_SECONDS):
            pass
        self._members[0].join()

    def leave(self) -> None:
        """After an interruption of `run`: returns when no member is at work, whatever else interrupts."""
        with self._lock:
            self._cancelled = True
        while self._begun and not self._finished.is_set():
            try:
                self._finished.wait(POLL_SECONDS)
            except KeyboardInterrupt:
                continue  # the first one is on its way already


def run_workers(work: Callable[[int], None], workers: int, stop: Callable[[], None], abort: Callable[[], None]) -> None:
    """Calls work(0) .. work(workers - 1) side by side, each in a new thread, and returns when all have ended.

    An interruption of the caller (Ctrl-C) calls `stop`, waits for the workers, and is raised again. A failing
    worker calls `abort`, so that the others do not wait for it, and raises InternalError here.
    """
    crew = _Crew(work, workers, abort)
    try:
        crew.run()
    except BaseException:
        stop()
        crew.leave()
        raise
    if crew.failures:
        raise InternalError(f"A worker failed: {crew.failures[0]!r}.") from crew.failures[0]
