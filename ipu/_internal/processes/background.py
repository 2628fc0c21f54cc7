"""A thread that executes a transport's collectives while the program continues."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from queue import SimpleQueue


class Background:
    """Calls that one thread executes in order. It does not keep the interpreter alive."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], None], Future[None]]] = SimpleQueue()
        self._latest: Future[None] | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def submit(self, call: Callable[[], None]) -> Future[None]:
        """Executes a call after those before it. The future has the error that ended the thread, if it has ended."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="collectives", daemon=True)
            self._thread.start()
        future: Future[None] = Future()
        self._latest = future
        self._calls.put((call, future))
        if self._error is not None:
            _fail(future, self._error)
        return future

    def wait(self) -> None:
        """Returns once all calls have ended, however they did."""
        if self._latest is not None:
            wait([self._latest])

    @property
    def is_current(self) -> bool:
        """Whether the current thread is the one that executes the calls."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        try:
            while True:
                call, future = self._calls.get()
                try:
                    future.set_result(call())
                except BaseException as error:
                    _fail(future, error)
        except BaseException as error:  # raised in the threads that wait for the calls
            self._error = error
            while not self._calls.empty():
                _fail(self._calls.get()[1], error)


def _fail(future: Future[None], error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)
