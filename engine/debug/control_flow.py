"""Control flow of the step table, and the steps of a call that has an observer."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

import numpy as np

from engine.errors import InternalError
from engine.program.control_words import COUNTERS
from engine.runtime.executor import COMPUTING, Column, RowKind, State
from engine.runtime.observer import Observer, RunningCall

NAP_SECONDS = 0.0002


class Walk:
    """The rows of one step that compute, wait or branch, in order of execution.

    `iterations` are the counters of the loops. After a branch row the caller passes its predicate's value to `branch`.
    Iteration raises InternalError for a row of unknown kind.
    """

    def __init__(self, table: np.ndarray) -> None:
        self._table = table
        self._taken = False
        self.iterations = [0] * COUNTERS

    def branch(self, predicate: bool) -> None:
        """Sets the value of the predicate of the branch row just yielded."""
        self._taken = predicate

    def __iter__(self) -> Iterator[np.ndarray]:
        number = 0
        while number < len(self._table):
            row = self._table[number]
            kind, target = row[Column.KIND], int(row[Column.TARGET])
            number += 1
            if kind in (*COMPUTING, RowKind.SYNC):
                yield row
            elif kind == RowKind.BRANCH:
                yield row
                number = target if self._taken == bool(row[Column.TRUTH]) else number
            elif kind == RowKind.JUMP:
                number = target
            elif kind == RowKind.REPEAT:
                number = target if self._another_iteration(row) else number
            elif kind == RowKind.ITERATION:
                number = target if self._is_followed_now(row) else number
            else:
                raise InternalError(f"Expected rows of known kinds. Received row {number - 1}: {row.tolist()}.")

    def _another_iteration(self, row: np.ndarray) -> bool:
        counter = int(row[Column.PARAMETERS])
        self.iterations[counter] = (self.iterations[counter] + 1) % int(row[Column.PREDICATE])
        return self.iterations[counter] != 0

    def _is_followed_now(self, row: np.ndarray) -> bool:
        address = int(row[Column.PREDICATE]) + self.iterations[row[Column.PARAMETERS]]
        return bool(ctypes.c_int8.from_address(address).value) == bool(row[Column.TRUTH])


class Follower:
    """The connection of a call to its observer, if it has one: it reports steps, and waits when the observer does."""

    def __init__(self, observer: Observer | None, state: np.ndarray, results: list[np.ndarray]) -> None:
        self._observer, self.state = observer, state
        if observer is not None:
            observer.begin(RunningCall(state, results))

    def goes_on(self, step: int) -> bool:
        """Whether a step may begin; wait while the observer has not taken the results of too many steps."""
        held = self._observer.held if self._observer is not None else 0
        if held and step - self.state[State.TAKEN] >= held:
            self.state[State.WAITS] += 1
        while held and step - self.state[State.TAKEN] >= held and not self.state[State.STOP]:
            time.sleep(NAP_SECONDS)
        return not self.state[State.STOP]

    def completed(self, steps: int) -> None:
        """Records that `steps` steps are complete."""
        self.state[State.COMPLETED] = steps

    def end(self, steps: int) -> None:
        """Tells the observer that the call has ended after `steps` steps."""
        if self._observer is not None:
            self._observer.end(steps)
