"""A call in segments: each with the number of workers that is best at its time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from engine.runtime.choice import WorkerChoice, losers
from engine.runtime.delays import delay_of
from engine.runtime.executor import State
from engine.runtime.time_limit import TimeLimit
from engine.runtime.workers import request_change, run_segment

LOOK_SECONDS = 0.02
"""Seconds between checks for signals and other threads."""
BRIEF_SECONDS = 0.05
"""Segments expected to take no longer run on the calling thread, which then cannot be interrupted. If such a
segment takes longer, or than the trial of a number of workers, it ends early and new threads run the next one."""


class SegmentWatch:
    """Monitors the workers of a segment: ends it when the number of workers should be chosen again."""

    def __init__(self, choice: WorkerChoice, state: np.ndarray, workers: int, most: int) -> None:
        self._choice, self._state = choice, state
        self._is_full = workers == most
        self._seen = [0.0] * workers
        self.delays = [0.0] * workers
        self.begin = self._seen_at = time.perf_counter()
        self._patience = choice.patience(self.begin)

    def first_look(self) -> float:
        """Seconds until the current number of workers has been tried for long enough."""
        return self._patience

    def look(self, threads: list[int]) -> float:
        """Ends a segment with all workers if other threads use the cores, and any other when its time is up."""
        now = time.perf_counter()
        if self._choice.has_two or not self._is_full:
            if now - self.begin >= self._patience:
                request_change(self._state)
            return max(self.begin + self._patience - now, LOOK_SECONDS)
        seen = [delay_of(thread) for thread in threads]
        if losers(now - self._seen_at, [after - before for before, after in zip(self._seen, seen, strict=False)]):
            request_change(self._state)
        # the longer no contention shows, the rarer the checks
        pause = 2 * (now - self._seen_at)
        self._seen, self._seen_at = seen, now
        return pause

    def leaves(self, worker: int, delay: float) -> None:
        """Records the delay of a worker that is done, in seconds."""
        self.delays[worker] = delay


def run_in_segments(
    choice: WorkerChoice,
    most: int,
    steps: int,
    table: Callable[[int], np.ndarray],
    scratch: Callable[[int], np.ndarray],
    state: np.ndarray,
    is_given: bool = False,
    may_be_inline: bool = False,
    is_inline: bool = False,
    interrupt: Callable[[], None] | None = None,
    limit: TimeLimit | None = None,
) -> int:
    """Runs a call that `begin_call` has begun with at most `most` workers; returns how many workers ended it.

    If `is_given`, exactly `most` workers run. `table` and `scratch` return the step table and the scratch areas for a
    number of workers. With `may_be_inline` the call does not wait for the host, so brief ones can do without Ctrl-C;
    with `is_inline` the calling thread is a worker in any case. `interrupt` is called when workers must leave their
    step. Raises the errors of `run_table`.
    """
    completed = 0
    while True:
        workers = most if is_given else choice.workers(most, time.perf_counter())
        watch = SegmentWatch(choice, state, workers, most)
        # under contention the scheduler favours new threads over one that has used up its share of the cores
        brief = not choice.is_crowded and choice.step_seconds * (steps - completed) < BRIEF_SECONDS
        inline = is_inline or (may_be_inline and brief)
        most_seconds = min(BRIEF_SECONDS, watch.first_look()) if choice.has_two else BRIEF_SECONDS
        first, completed = (
            completed,
            run_segment(
                *(table(workers), steps, completed, workers, scratch(workers), state, inline),
                watch=None if is_given else watch,
                deadline=time.monotonic_ns() + int(1e9 * most_seconds) if inline else 0,
                limit=limit,
                interrupt=interrupt,
            ),
        )
        now = time.perf_counter()
        choice.note_steps(completed - first, now - watch.begin)
        if not is_given:
            choice.note(workers, completed - first, now - watch.begin, watch.delays, now)
        if completed >= steps or state[State.STOP] or not state[State.CHANGE]:
            return workers
