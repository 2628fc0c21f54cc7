"""Workers as threads unknown to Python: a thread pool for each call, whose caller stays interruptible.

No thread of a pool outlives its call, so there is nothing to shut down at exit and nothing to restart after a fork. The
kernel schedules new threads better than parked ones; none is ever pinned.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Protocol

import numpy as np

from engine.codelets.language.build import Codelet, make
from engine.codelets.threads.thread_pool import (
    AFFINITY_WORDS,
    Member,
    ThreadPool,
    await_threads,
    join_threads,
    run_member,
    start_threads,
)
from engine.errors import InternalError
from engine.machine_code.abi import c_function
from engine.runtime.buffers import aligned_zeros
from engine.runtime.executor import State, executor
from engine.runtime.threads import cores_to_spread
from engine.runtime.time_limit import TimeLimit

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 0.4
"""Seconds for which an interrupted caller waits for the end of a step before it asks the workers to leave it."""
FUNCTIONS = {
    ThreadPool.SYSCALL: "syscall",
    ThreadPool.CREATE: "pthread_create",
    ThreadPool.JOIN: "pthread_join",
    ThreadPool.TRY_JOIN: "pthread_tryjoin_np",
    ThreadPool.SET_AFFINITY: "pthread_setaffinity_np",
    ThreadPool.GET_CORE: "sched_getcpu",
    ThreadPool.GET_USAGE: "getrusage",
    ThreadPool.CONTROL: "prctl",
    ThreadPool.OPEN: "open",
    ThreadPool.READ: "read",
    ThreadPool.CLOSE: "close",
}
ACCOUNTING = ctypes.create_string_buffer(b"/proc/thread-self/schedstat")

_ALL = slice(int(ThreadPool.ALL), ThreadPool.ALL + AFFINITY_WORDS)
_NAME = slice(int(Member.NAME), int(Member.TEXT))


def codelets_of_calls() -> list[Codelet]:
    """Codelets that calls run beside the program's own, to be compiled before the first call."""
    return [executor, run_member, start_threads, await_threads, join_threads]


@cache
def common_words() -> np.ndarray:
    """Words that all thread pool blocks have in common."""
    block = np.zeros(ThreadPool.WORDS, np.int64)
    for word, name in FUNCTIONS.items():
        block[word] = c_function(name)
    make(codelets_of_calls())  # here, where Ctrl-C still works
    block[ThreadPool.EXECUTOR], block[ThreadPool.MEMBER] = executor.address, run_member.address
    block[ThreadPool.ACCOUNTING] = ctypes.addressof(ACCOUNTING)
    return block


@cache
def _spreading(cores: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """The numbers of the cores and their mask, as in a thread pool block; None for core numbers beyond its capacity."""
    if not cores or cores[-1] >= 64 * AFFINITY_WORDS:
        return None
    mask = np.zeros(64 * AFFINITY_WORDS, np.uint8)
    mask[list(cores)] = 1
    return np.array(cores, np.int64), np.packbits(mask, bitorder="little").view(np.int64)


@cache
def _names(workers: int, kind: str) -> np.ndarray:
    """Names of the threads, as in a thread pool block: int64 [workers, 2]."""
    names = b"".join(f"{kind} {worker}".encode().ljust(16, b"\0") for worker in range(workers))
    return np.frombuffer(names, np.int64).reshape(workers, 2)


def new_block(workers: int, first: int, pauses: int, kind: str = "worker") -> np.ndarray:
    """A thread pool block without a call, for threads of the present cores, named after their `kind`."""
    block = aligned_zeros(8 * (ThreadPool.WORDS + workers * Member.WORDS)).view(np.int64)
    block[: ThreadPool.WORDS] = common_words()
    block[ThreadPool.WORKERS], block[ThreadPool.FIRST], block[ThreadPool.PAUSES] = workers, first, pauses
    spreading = _spreading(tuple(cores_to_spread(workers)))
    if spreading is not None:
        block[ThreadPool.CORES], block[_ALL] = spreading[0].ctypes.data, spreading[1]
    members_of(block)[:, _NAME] = _names(workers, kind)
    return block


def members_of(block: np.ndarray) -> np.ndarray:
    """The members of a thread pool block, int64 [workers, words]."""
    return block[ThreadPool.WORDS :].reshape(-1, Member.WORDS)


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


class NativeThreadPool:
    """The threads of one call, for an initialised state block. With `inline` the calling thread is worker 0."""

    def __init__(
        self, state: np.ndarray, workers: int, scratch: np.ndarray, pauses: int, inline: bool, watch: Watch | None
    ) -> None:
        self._kept = state, scratch
        self._watch = watch
        self._first = int(inline)
        self._block = block = new_block(workers, self._first, pauses)
        address = state.ctypes.data
        block[ThreadPool.STATE], block[ThreadPool.ABORT] = address, address + 8 * State.ABORT
        block[ThreadPool.SCRATCH], block[ThreadPool.SCRATCH_BYTES] = scratch.ctypes.data, scratch.strides[0]
        self._members = members_of(block)
        self._address = int(block.ctypes.data)

    def begin(self) -> None:
        """Starts the threads; the calling thread works with them if it is one of the workers."""
        (join_threads if self._first else start_threads)(self._address, 0, 0, 0)

    def wait(self, seconds: float) -> bool:
        """Sleeps until all threads have ended, a signal comes or time is up; returns whether all threads have ended."""
        block = self._block
        if block[ThreadPool.STARTED] and not block[ThreadPool.JOINED]:
            whole = int(seconds)
            block[ThreadPool.SECONDS], block[ThreadPool.NANOSECONDS] = whole, int(1e9 * (seconds - whole))
            await_threads(self._address, 0, 0, 0)
            if not block[ThreadPool.JOINED]:
                return False
        if self._watch is not None:
            for worker, delay in enumerate(self._members[:, Member.DELAY].tolist()):
                self._watch.leaves(worker, 1e-9 * delay)
        return True

    def threads(self) -> list[int]:
        """Kernel thread ids of the threads that have begun."""
        return [thread for thread in self._members[:, Member.THREAD].tolist() if thread]

    def failure(self) -> BaseException | None:
        """The error of a thread that could not be started."""
        number = int(self._block[ThreadPool.FAILURE])
        return RuntimeError(f"can't start new thread: {os.strerror(number)}") if number else None


def attend(pool: NativeThreadPool, stop: Stop, watch: Watch | None, limit: TimeLimit | None = None) -> None:
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


def _leave(pool: NativeThreadPool, stop: Stop) -> None:
    """Waits after an interruption until no worker runs, then returns or raises a later interruption."""
    patient_until = time.monotonic() + PATIENCE_SECONDS
    latest: BaseException | None = None
    while True:
        try:
            stop(False)
            while not pool.wait(POLL_SECONDS):
                stop(time.monotonic() >= patient_until)
            break
        except BaseException as again:  # a second interruption ends the patience
            latest, patient_until = again, 0.0
    if latest is not None:
        raise latest
