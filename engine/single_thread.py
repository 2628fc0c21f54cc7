"""An executor of one thread, whose callers never wait for a thread that has ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, InvalidStateError
from queue import Empty, SimpleQueue
from typing import Any


class SingleThread(Executor):
    """Calls that one thread executes in order. It does not keep the interpreter alive.

    Python's ThreadPoolExecutor leaves the futures pending for ever when its thread is killed while it waits.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._ended = False

    @property
    def error(self) -> BaseException | None:
        """The error that has killed the thread while it waited; None otherwise."""
        return self._error

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Executes a call after those before it. The future has the error that ended the thread, if it has ended.

        Raises RuntimeError after `shutdown`.
        """
        if self._ended:
            raise RuntimeError(f"Expected a call before the end of the thread {self._name}. Received: one after it.")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: Future[Any] = Future()
        self._calls.put((lambda: function(*arguments, **named), future))
        if self._error is not None:
            _fail(future, self._error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the thread after the calls before, which are cancelled instead with `cancel_futures`."""
        self._ended = True
        for future in self._waiting() if cancel_futures else ():
            future.cancel()
        self._calls.put(None)
        if wait and self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                _execute(*call)
                del call  # the results would live on while the thread waits
        except BaseException as error:  # raised in the threads that wait for the calls
            self._error = error
            for future in self._waiting():
                _fail(future, error)

    def _waiting(self) -> Iterator[Future[Any]]:
        """Takes the calls that the thread has not begun; yields their futures."""
        with contextlib.suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    yield call[1]


def _execute(call: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        _fail(future, error)


def _fail(future: Future[Any], error: BaseException) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)
