"""A call of one step by the calling thread, with everything prepared that is the same in each call.

A step that reads more weights than fit into the processor's cache displaces the interpreter's code and data from it.
Each line of Python after the step then costs several times its usual time, so these calls run few lines.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from engine.runtime.bound_queues import words_of_call
from engine.runtime.build_table import TableBuilder
from engine.runtime.choice import WorkerChoice
from engine.runtime.executor import State, executor
from engine.runtime.feeds import RowFeed
from engine.runtime.value_checks import ValueChecks
from engine.runtime.workers import state_of_one_step, unknown_row

COMPLETED = int(State.COMPLETED)


class BriefCall:
    """Runs a step table of one worker for one step, with arrays as its feeds; not for concurrent calls.

    `builder` owns arrays whose addresses are in the table. `feeds`, by number, and `outputs` are views of the program's
    memory. `choice` records the time of each call if the program could have several workers. `call_block` is the
    program's call block, if it has one, and `checks` are its checks of values.
    """

    workers = 1

    def __init__(
        self,
        table: np.ndarray,
        builder: TableBuilder,
        scratch: np.ndarray,
        feeds: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        choice: WorkerChoice | None = None,
        call_block: np.ndarray | None = None,
        checks: ValueChecks | None = None,
    ) -> None:
        self._kept = table, builder, scratch
        self._state = state = state_of_one_step(table, scratch)
        self._first, self._words = state.copy(), state.data
        self._arguments = state.ctypes.data, 0, 1, scratch.ctypes.data
        self._call_block, self._checks = call_block, checks
        self._call_words = None if call_block is None else words_of_call(state)
        self._feeds, self._outputs, self._choice = tuple(feeds), tuple(outputs), choice

    def run_rows(self, feeds: Sequence[RowFeed], counts: Sequence[int]) -> list[np.ndarray]:
        """Runs a step on the first `counts[k]` rows of each feed k, and returns copies of the results."""
        return self.run([feed.step(0, rows) for feed, rows in zip(feeds, counts, strict=True)])

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs a step on one array of exactly the shape and dtype of each feed; returns copies of the results."""
        begin = 0.0 if self._choice is None else time.perf_counter()
        for feed, array in zip(self._feeds, arrays, strict=True):
            feed[...] = array
        self._state[...] = self._first
        if self._call_block is not None:
            self._call_block[...] = self._call_words
        executor(*self._arguments)
        if self._words[COMPLETED] != 1:
            if self._checks is not None:
                self._checks.raise_failure(0, 1)
            raise unknown_row(self._state)
        if self._choice is not None:
            self._choice.note_alone(begin, time.perf_counter())
        return [output.copy() for output in self._outputs]
