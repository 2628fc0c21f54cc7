"""A call of one step by the calling thread and persistent threads, with everything prepared that each call shares."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from engine.codelets.host.rows import point_feed
from engine.runtime.bound_queues import words_of_call
from engine.runtime.build_table import TableBuilder
from engine.runtime.choice import WorkerChoice
from engine.runtime.executor import State
from engine.runtime.feeds import RowFeed
from engine.runtime.persistent_threads import has_persistent_threads, persistent_threads
from engine.runtime.value_checks import ValueChecks
from engine.runtime.workers import run_segment, state_of_one_step, unknown_row

COMPLETED = int(State.COMPLETED)
MOST_SECONDS = 0.02
"""Longer calls are measured, and can be interrupted: starting threads for them takes a small part of their time."""


class SharedCall:
    """Runs a step table of several workers for one step, with arrays as its feeds; not for concurrent calls.

    `builder` owns arrays whose addresses are in the table. The table's first compute sets copy the feeds: `feeds` has
    the feed block of each. `outputs` are views of the program's results. `choice` records the time of each call.
    `call_block` is the program's call block, if it has one, and `checks` are its checks of values.
    """

    def __init__(
        self,
        table: np.ndarray,
        builder: TableBuilder,
        scratch: np.ndarray,
        feeds: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        choice: WorkerChoice,
        call_block: np.ndarray | None = None,
        checks: ValueChecks | None = None,
    ) -> None:
        self.workers = len(scratch)
        self._kept = table, builder, scratch
        self._claims = builder.claims
        self._state = state = state_of_one_step(table, scratch)
        self._first, self._words = state.copy(), state.data
        self._arguments = state.ctypes.data, scratch.ctypes.data, scratch.strides[0]
        self._feeds, self._outputs, self._choice = tuple(feeds), tuple(outputs), choice
        self._call_block, self._checks = call_block, checks
        self._call_words = None if call_block is None else words_of_call(state)

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
        self._claims[...] = 0
        if self._call_block is not None:
            self._call_block[...] = self._call_words
        if has_persistent_threads():
            table, _, scratch = self._kept
            run_segment(table, 1, 0, self.workers, scratch, self._state, inline=True)
            had_cores = True
        else:
            with persistent_threads(self.workers) as threads:
                had_cores = threads.call(*self._arguments)
        if self._words[COMPLETED] != 1:
            if self._checks is not None:
                self._checks.raise_failure(0, 1)
            raise unknown_row(self._state)
        results = [output.copy() for output in self._outputs]
        self._choice.note_brief(time.perf_counter() - begin, had_cores)
        return results
