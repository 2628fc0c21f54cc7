"""Following a call from another thread: which steps are complete, what they returned, and ending it early."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.runtime.executor import State
from engine.runtime.workers import completed_steps, request_stop


class RunningCall:
    """A call under way. Step s is complete, and `results` hold it at index s, once `completed()` is more than s."""

    def __init__(self, state: np.ndarray, results: list[np.ndarray]) -> None:
        self._state = state
        self.results = results

    def completed(self) -> int:
        """How many steps are complete."""
        return completed_steps(self._state)

    def taken(self, steps: int) -> None:
        """Says how many steps' results nobody needs any longer; an engine that waits for it goes on."""
        self._state[State.TAKEN] = steps

    def go_on(self) -> None:
        """Lets the engine go on as if all results were taken, until the next `taken`.

        Who takes results and waits for the end of the call calls this again and again meanwhile.
        """
        self._state[State.TAKEN] = self._state[State.STEPS]

    def stop(self) -> None:
        """Asks the engine to end at its next step boundary."""
        request_stop(self._state)

    def waits(self) -> int:
        """How often the engine waited until results were taken."""
        return int(self._state[State.WAITS])


class Observer(Protocol):
    """Somebody who follows calls."""

    held: int
    """The engine waits while so many steps' results have not been taken; 0 lets it run."""

    def begin(self, call: RunningCall) -> None:
        """The engine is about to begin. Returns at once."""

    def end(self, completed: int) -> None:
        """The engine has ended after so many steps, fewer than asked for only if it was told to stop or interrupted."""
