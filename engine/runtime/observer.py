"""Observation of a call from another thread: its complete steps, their results, and ending it early."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.runtime.executor import State
from engine.runtime.workers import completed_steps, request_stop


class RunningCall:
    """A running call. Step s is complete, and its results are at index s of `results`, once `completed()` > s."""

    def __init__(self, state: np.ndarray, results: list[np.ndarray]) -> None:
        self._state = state
        self.results = results

    def completed(self) -> int:
        """Number of complete steps."""
        return completed_steps(self._state)

    def taken(self, steps: int) -> None:
        """Releases the results of the first `steps` steps; an engine that waits for it goes on."""
        self._state[State.TAKEN] = steps

    def go_on(self) -> None:
        """Lets the engine go on as if all results were taken, until the next `taken`.

        A thread that takes results calls this repeatedly while it waits for the end of the call.
        """
        self._state[State.TAKEN] = self._state[State.STEPS]

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
