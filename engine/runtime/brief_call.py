"""Calls of one step with everything prepared that is the same in each call.

A step that reads more weights than fit into the processor's cache displaces the interpreter's code and data from it.
Each line of Python after the step then costs several times its usual time, so these calls run few lines.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from engine.codelets.host.rows import point_feed
from engine.runtime.bound_queues import words_of_call
from engine.runtime.build_table import TableBuilder
from engine.runtime.choice import WorkerChoice
from engine.runtime.executor import State, executor
from engine.runtime.feeds import RowFeed
from engine.runtime.persistent_threads import has_persistent_threads, persistent_threads
from engine.runtime.value_checks import ValueChecks
from engine.runtime.workers import run_segment, state_of_one_step

COMPLETED = int(State.COMPLETED)
MOST_SECONDS = 0.02
"""Longer calls are measured, and can be interrupted: starting threads for them takes a small part of their time."""


class PreparedCall:
    """A step table for one step, with arrays as its feeds; not for concurrent calls.

    `builder` owns arrays whose addresses are in the table. `outputs` are views of the program's results. `choice`
    records the time of each call if the program could have several workers. `call_block` is the program's call block,
    if it has one, and `checks` are its checks of values: only one that fails ends a call before its step is complete.
    """

    def __init__(
        self,
        table: np.ndarray,
        builder: TableBuilder,
        scratch: np.ndarray,
        feeds: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        choice: WorkerChoice | None,
        call_block: np.ndarray | None,
        checks: ValueChecks,
    ) -> None:
        self.workers = len(scratch)
        self._kept = table, builder, scratch
        self._state = state = state_of_one_step(table, scratch)
        self._first, self._words = state.copy(), state.data
        self._addresses = state.ctypes.data, scratch.ctypes.data
        self._call_block, self._checks = call_block, checks
        self._call_words = None if call_block is None else words_of_call(state)
        self._feeds, self._outputs, self._choice = tuple(feeds), tuple(outputs), choice


class BriefCall(PreparedCall):
    """A call by the calling thread alone. `feeds` are views of the program's memory, by number."""

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
        state, scratch = self._addresses
        executor(state, 0, 1, scratch)
        if self._words[COMPLETED] != 1:
            self._checks.raise_failure(0, 1)
        if self._choice is not None:
            self._choice.note_alone(begin, time.perf_counter())
        return [output.copy() for output in self._outputs]


class SharedCall(PreparedCall):
    """A call by the calling thread and persistent threads; it has a `choice`.

    The table's first compute sets copy the feeds: `feeds` has the feed block of each.
    """

    def run_rows(self, feeds: Sequence[RowFeed], counts: Sequence[int]) -> list[np.ndarray]:
        """Runs a step on the first `counts[k]` rows of each feed k, and returns copies of the results."""
        for block, feed in zip(self._feeds, feeds, strict=True):
            point_feed(block, feed.array, feed.rows)
        return self._run()

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs a step on one array of exactly the shape and dtype of each feed; returns copies of the results."""
        held = [np.ascontiguousarray(array) for array in arrays]
        for block, array in zip(self._feeds, held, strict=True):
            point_feed(block, array)
        return self._run()

    def _run(self) -> list[np.ndarray]:
        begin = time.perf_counter()
        self._state[...] = self._first
        table, builder, scratch = self._kept
        builder.claims[...] = 0
        if self._call_block is not None:
            self._call_block[...] = self._call_words
        if has_persistent_threads():
            run_segment(table, 1, 0, self.workers, scratch, self._state, inline=True)
            had_cores = True
        else:
            with persistent_threads(self.workers) as threads:
                had_cores = threads.call(*self._addresses, scratch.strides[0])
        if self._words[COMPLETED] != 1:
            self._checks.raise_failure(0, 1)
        results = [output.copy() for output in self._outputs]
        assert self._choice is not None
        self._choice.note_brief(time.perf_counter() - begin, had_cores)
        return results
