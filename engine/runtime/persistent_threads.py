"""The persistent threads of this process: workers of calls so brief that starting threads would take as long.

They are started for the first such call, sleep soon after the last, and end before a fork and at exit. Only one call
uses them at a time.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from engine.codelets.language.build import Codelet, make
from engine.codelets.threads.thread_pool import ThreadPool, call_persistent, run_persistent, start_threads
from engine.codelets.threads.waiting import WaitingBlock
from engine.errors import InternalError
from engine.runtime.native_threads import new_block
from engine.runtime.threads import cores_to_spread
from engine.runtime.workers import pauses_before_sleep

SLEEP_SECONDS = 3600
"""Longest sleep of a thread without work. Each wake-up is exact, so it need not be short."""

EXIT_SECONDS = 1.0
"""Seconds for which the end of the process waits for another thread's brief call."""


def codelets_of_persistent_threads() -> list[Codelet]:
    """Codelets that calls with persistent threads run beside the program's own."""
    return [run_persistent, call_persistent, start_threads]


class PersistentThreads:
    """`workers` - 1 threads for calls of `workers` workers, on the present cores of the process.

    Raises InternalError if a thread cannot be started; threads that were started have ended then.
    """

    def __init__(self, workers: int) -> None:
        make(codelets_of_persistent_threads())
        self.workers, self.cores = workers, cores_to_spread(workers)
        self._block = block = new_block(workers, 1, pauses_before_sleep(), "persistent")
        block[ThreadPool.MEMBER] = run_persistent.address
        block[ThreadPool.ABORT] = block.ctypes.data + 8 * ThreadPool.ABORTED
        waiting = block[ThreadPool.WAITING :]
        waiting[WaitingBlock.PAUSES], waiting[WaitingBlock.SECONDS] = pauses_before_sleep(), SLEEP_SECONDS
        waiting[WaitingBlock.SYSCALL] = block[ThreadPool.SYSCALL]
        self._words, self._address = block.data, int(block.ctypes.data)
        _blocks[self._address] = block  # Ctrl-C may interrupt this constructor, but the threads need their block
        start_threads(self._address, 0, 0, 0)
        failure = int(block[ThreadPool.FAILURE])
        if failure:
            self.end()
            raise InternalError(f"A worker failed: can't start new thread: {os.strerror(failure)}.")

    def call(self, state: int, scratch: int, scratch_bytes: int) -> bool:
        """Runs the call of the state block at address `state`; returns whether all workers kept their cores.

        `scratch` is the address of scratch areas of `scratch_bytes` bytes each.
        """
        words = self._words
        words[ThreadPool.STATE], words[ThreadPool.SCRATCH] = state, scratch
        words[ThreadPool.SCRATCH_BYTES] = scratch_bytes
        lost = words[ThreadPool.LOST]
        call_persistent(self._address, 0, 0, 0)
        return bool(words[ThreadPool.LOST] == lost)

    def serve(self, workers: int) -> bool:
        """Whether these threads fit a call of `workers` workers on the present cores."""
        return self.workers == workers and self.cores == cores_to_spread(workers)

    @property
    def have_ended(self) -> bool:
        """Whether `end` has joined the threads, even if Ctrl-C interrupted it afterwards."""
        return bool(self._words[ThreadPool.JOINED])

    def end(self) -> None:
        """Ends the threads and returns when they have ended."""
        if self.have_ended:
            return
        self._words[ThreadPool.STATE] = 0
        call_persistent(self._address, 0, 0, 0)
        _blocks.pop(self._address, None)


_blocks: dict[int, np.ndarray] = {}
_lock = threading.Lock()
_threads: PersistentThreads | None = None
_owner = 0
"""The identifier of the thread whose call uses the persistent threads; 0 for none."""


def has_persistent_threads() -> bool:
    """Whether a call of this thread uses the threads: another one, from a signal handler, would wait for itself."""
    return _owner == threading.get_ident()


@contextmanager
def persistent_threads(workers: int) -> Iterator[PersistentThreads]:
    """Holds the threads for one call of `workers` workers. Raises the errors of PersistentThreads."""
    global _threads, _owner
    caller = threading.get_ident()
    with _lock:
        _owner = caller  # before anything at which Python runs signals' handlers
        try:
            if _threads is None or _threads.have_ended or not _threads.serve(workers):
                if _threads is not None:
                    _threads.end()
                _threads = None
                _threads = PersistentThreads(workers)
            yield _threads
        finally:
            _owner = 0


def end_persistent_threads(patience: float = 0.0) -> None:
    """Ends the threads unless a call uses them for longer than `patience` seconds."""
    global _threads
    until = time.monotonic() + patience
    while _lock.locked() and time.monotonic() < until:
        time.sleep(0.001)
    if not _lock.locked():
        with _lock:  # `acquire` would keep it where Ctrl-C comes before the next line
            if _threads is not None:
                _threads.end()
            _threads = None


def _forget() -> None:
    """Drops the threads in a forked child, where the parent's do not exist."""
    global _lock, _threads, _owner
    _lock, _threads, _owner = threading.Lock(), None, 0


atexit.register(end_persistent_threads, EXIT_SECONDS)
os.register_at_fork(before=end_persistent_threads, after_in_child=_forget)
