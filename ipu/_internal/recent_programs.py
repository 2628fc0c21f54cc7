"""Programs for shapes and other keys, of which the least recently used are dropped."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

MOST_PROGRAMS = 256
"""Programs of one function that are kept: of a model's mode, a tf.function or a compiled function of a graph.

A program of two small layers takes 2.2 MB with its trace; a dropped one is made again where its shapes come back.
"""
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentPrograms(Generic[Key, Value]):
    """A dict of at most MOST_PROGRAMS values, in the order in which they were added. Callers hold a lock."""

    def __init__(self) -> None:
        self._values: dict[Key, Value] = {}
        self._used: dict[Key, int] = {}
        self._clock = itertools.count()

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used; None if there is none."""
        value = self._values.get(key)
        if value is not None:
            self._used[key] = next(self._clock)
        return value

    def add(self, key: Key, value: Value) -> list[Value]:
        """Adds the value of a key; returns those that are dropped for it, the least recently used first."""
        self._values[key] = value
        self._used[key] = next(self._clock)
        dropped = []
        while len(self._values) > MOST_PROGRAMS:
            oldest = min(self._used, key=self._used.__getitem__)
            dropped.append(self._values.pop(oldest))
            del self._used[oldest]
        return dropped

    def clear(self) -> None:
        """Drops all values."""
        self._values.clear()
        self._used.clear()

    def values(self) -> list[Value]:
        """All values, the one added last at the end."""
        return list(self._values.values())

    def __len__(self) -> int:
        return len(self._values)
