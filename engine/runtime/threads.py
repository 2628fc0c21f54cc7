"""Worker threads: how many, and started anew for each call with a caller that stays interruptible.

No thread outlives the call, so there is nothing to shut down at exit and nothing to remake after a fork. The
kernel places new threads better than parked ones; none is ever pinned.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from engine.errors import ConfigurationError, InternalError

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


def spread(worker: int, cores: Sequence[int]) -> None:
    """Moves the calling thread to a core of its own, and lets it go on wherever it likes.

    New threads often begin on one core, and it takes the system some 5 ms to see it. Only where every core gets a
    worker: elsewhere the system knows better which cores are free.
    """
    if cores:
        # a core may have been taken away meanwhile
        with suppress(OSError):
            os.sched_setaffinity(0, {cores[worker]})
            os.sched_setaffinity(0, cores)


def cores_to_spread(workers: int) -> Sequence[int]:
    """The core of each of so many workers; none where the system is to decide."""
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

    def leaves(self, worker: int) -> None:
        """A worker is done; called in its thread."""


class _Crew:
    """The threads of one call. The first starts the others, as signals only ever reach the calling thread."""

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
            spread(worker, self._cores)
            self._work(worker)
            if self._watch is not None:
                self._watch.leaves(worker)
        except BaseException as failure:  # handed to the caller, who raises it
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self.failures.append(failure)
        self._abort()

    def run(self) -> None:
        self._members[0].start()
        # an interruption that is not a signal to this thread does not end a wait
        seconds = POLL_SECONDS if self._watch is None else self._watch.first_look()
        while not self._finished.wait(min(seconds, POLL_SECONDS)):
            if self._watch is not None:
                seconds = self._watch.look([each.native_id for each in self._members if each.native_id is not None])
        self._members[0].join()

    def leave(self, stop: Stop) -> None:
        """After an interruption of `run`: returns, or raises what else interrupts, when no member is at work."""
        patient_until = time.monotonic() + PATIENCE_SECONDS
        latest: BaseException | None = None
        while True:
            try:
                self._wait(stop, patient_until)
                break
            except BaseException as again:  # somebody who asks twice is not patient
                latest, patient_until = again, 0.0
        if latest is not None:
            raise latest

    def _wait(self, stop: Stop, patient_until: float) -> None:
        """Asks the members to end until they do; the first may not have begun."""
        stop(False)
        with self._lock:
            self._cancelled = True
        while self._begun and not self._finished.is_set():
            stop(time.monotonic() >= patient_until)
            self._finished.wait(POLL_SECONDS)


def run_workers(
    work: Callable[[int], None], workers: int, stop: Stop, abort: Callable[[], None], watch: Watch | None = None
) -> None:
    """Calls work(0) .. work(workers - 1) side by side, each in a new thread, and returns when all have ended.

    An interruption of the caller (Ctrl-C) calls stop(False), later stop(True) if need be, waits for the workers, and
    is raised again. A failing worker calls `abort`, so that the others do not wait for it, and raises InternalError.
    """
    crew = _Crew(work, workers, abort, watch)
    try:
        crew.run()
    except BaseException:
        crew.leave(stop)
        raise
    if crew.failures:
        raise InternalError(f"A worker failed: {crew.failures[0]!r}.") from crew.failures[0]
