"""Observation of a call from another thread: its complete steps, their results, and ending it early."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.runtime.executor import State
from engine.runtime.shared_words import load, store
from engine.runtime.workers import request_stop


class RunningCall:
    """A running call. Step s is complete, and its results are at index s of `results`, once `completed()` > s."""

    def __init__(self, state: np.ndarray, results: list[np.ndarray]) -> None:
        self._state, self._address = state, int(state.ctypes.data)
        self.results = results

    def completed(self) -> int:
        """Number of complete steps."""
        return load(self._address + 8 * State.COMPLETED)

    def taken(self, steps: int) -> None:
        """Releases the results of the first `steps` steps: an engine that waits goes on, unless `stop` came before."""
        store(self._address + 8 * State.TAKEN, steps)

    def go_on(self) -> None:
        """Lets the engine go on as if all results were taken, until the next `taken`.

        A thread that takes results calls this repeatedly while it waits for the end of the call.
        """
        self.taken(int(self._state[State.STEPS]))

    def stop(self) -> None:
        """Asks the engine to end at its next step boundary."""
        request_stop(self._state)

    def waits(self) -> int:
        """Number of times the engine waited until results were taken."""
        return int(self._state[State.WAITS])


class Observer(Protocol):
    """An observer of calls."""

    held: int
    """Number of steps whose results may wait: the engine waits while so many have not been taken; 0 lets it run."""

    def begin(self, call: RunningCall) -> None:
        """Called before the engine begins; returns at once."""

    def end(self, completed: int) -> None:
        """Called after the engine has ended; fewer steps than requested only if it was stopped or interrupted."""
