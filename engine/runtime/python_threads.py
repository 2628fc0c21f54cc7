"""Workers as Python threads, where the system has no futex."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from engine.runtime.delays import delay_here
from engine.runtime.threads import Watch, cores_to_spread


def spread(worker: int, cores: Sequence[int]) -> None:
    """Moves the calling thread to its own core once, without pinning it there."""
    if cores:
        # a core may have been taken away meanwhile
        with suppress(OSError):
            os.sched_setaffinity(0, {cores[worker]})
            os.sched_setaffinity(0, cores)


class PythonThreadPool:
    """A thread pool whose first thread starts the others, because signals only reach the calling thread."""

    def __init__(
        self, work: Callable[[int], None], workers: int, abort: Callable[[], None], watch: Watch | None
    ) -> None:
        self._work = work
        self._watch = watch
        self._cores = cores_to_spread(workers)
        self._abort = abort
        self._lock = threading.Lock()
        self._begun = self._cancelled = False
        self._finished = threading.Event()
        self._members = [
            threading.Thread(target=self._run, args=(worker,), name=f"worker {worker}") for worker in range(workers)
        ]
        self._failures: list[BaseException] = []

    def begin(self) -> None:
        """Starts the first thread."""
        self._members[0].start()

    def wait(self, seconds: float) -> bool:
        """Waits at most `seconds`; returns whether no worker runs and, after a cancellation, none ever will."""
        if self._cancelled and not self._begun:
            return True
        if not self._finished.wait(seconds):
            return False
        self._members[0].join()
        return True

    def cancel(self) -> None:
        """Keeps the first thread from starting the others if it has not begun."""
        with self._lock:
            self._cancelled = True

    def threads(self) -> list[int]:
        """Kernel thread ids of the threads that have begun."""
        return [each.native_id for each in self._members if each.native_id is not None]

    def failure(self) -> BaseException | None:
        """The first exception that a worker raised."""
        return self._failures[0] if self._failures else None

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
            spread(worker, self._cores)
            self._work(worker)
            if self._watch is not None:
                self._watch.leaves(worker, delay_here())
        except BaseException as failure:  # raised again in the caller's thread
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self._failures.append(failure)
        self._abort()
