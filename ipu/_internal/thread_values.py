"""Values that differ between threads, such as those of the function that a thread traces."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ThreadValue(threading.local, Generic[T]):
    """A value that starts as the same object in every thread."""

    def __init__(self, value: T) -> None:
        self.value = value

    @contextlib.contextmanager
    def replaced_by(self, value: T) -> Iterator[T]:
        """Gives this thread another value while the context is open."""
        outer, self.value = self.value, value
        try:
            yield value
        finally:
            self.value = outer
