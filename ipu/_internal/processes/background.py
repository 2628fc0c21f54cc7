"""A thread that executes a transport's collectives while the program continues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from engine.single_thread import SingleThread


class Background(SingleThread):
    """Calls that one thread executes in order. It does not keep the interpreter alive."""

    def __init__(self) -> None:
        super().__init__("collectives")
        self._latest: Future[Any] | None = None

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Executes a call after those before it. The future has the error that ended the thread, if it has ended."""
        self._latest = super().submit(function, *arguments, **named)
        return self._latest

    def wait(self) -> None:
        """Returns once all calls have ended, however they did."""
        if self._latest is not None:
            wait([self._latest])

    @property
    def is_current(self) -> bool:
        """Whether the current thread is the one that executes the calls."""
        return threading.current_thread() is self._thread
