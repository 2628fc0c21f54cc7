"""A call in pieces: with as many workers as are best now, and others for its later steps if that changes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from engine.runtime.choice import WorkerChoice, losers
from engine.runtime.delays import delay_of
from engine.runtime.executor import State
from engine.runtime.time_limit import TimeLimit
from engine.runtime.workers import request_change, run_piece

LOOK_SECONDS = 0.02
"""Between looks at signals and at other threads. Chosen by hand."""
BRIEF_SECONDS = 0.05
"""What is known to take no longer is begun by the calling thread, which then cannot be interrupted. Pieces that take
longer all the same end, so that others begin the next."""


class PieceWatch:
    """Looks after the workers of a piece: ends it when the choice is to be made again."""

    def __init__(self, choice: WorkerChoice, state: np.ndarray, workers: int, most: int) -> None:
        self._choice, self._state = choice, state
        self._is_full = workers == most
        self._seen = [0.0] * workers
        self.delays = [0.0] * workers
        self.begin = self._seen_at = time.perf_counter()
        self._patience = choice.patience(self.begin)

    def first_look(self) -> float:
        """When what is being tried has been tried for long enough."""
        return self._patience

    def look(self, threads: list[int]) -> float:
        """Ends a piece with all workers if others use the cores, and any other at its time."""
        now = time.perf_counter()
        if self._choice.is_crowded or not self._is_full:
            if now - self.begin >= self._patience:
                request_change(self._state)
            return max(self.begin + self._patience - now, LOOK_SECONDS)
        seen = [delay_of(thread) for thread in threads]
        if losers(now - self._seen_at, [after - before for before, after in zip(self._seen, seen, strict=False)]):
            request_change(self._state)
        # what is rare is looked for more rarely
        pause = 2 * (now - self._seen_at)
        self._seen, self._seen_at = seen, now
        return pause

    def leaves(self, worker: int, delay: float) -> None:
        """A worker is done."""
        self.delays[worker] = delay


def run_in_pieces(
    choice: WorkerChoice,
    most: int,
    steps: int,
    table: Callable[[int], np.ndarray],
    scratch: Callable[[int], np.ndarray],
    state: np.ndarray,
    is_given: bool = False,
    may_be_inline: bool = False,
    limit: TimeLimit | None = None,
) -> int:
    """Runs a call that `begin_call` has begun with at most so many workers; returns how many workers ended it.

    Exactly as many where their number `is_given`. `table` and `scratch` make or find those of a number of workers. With
    `may_be_inline` nobody is waited for, so that brief calls can do without Ctrl-C. Raises what `run_table` raises.
    """
    completed = 0
    while True:
        workers = most if is_given else choice.workers(most, time.perf_counter())
        watch = PieceWatch(choice, state, workers, most)
        # beside strangers new threads get on better than one that has had its share of the cores
        inline = may_be_inline and not choice.is_crowded and choice.step_seconds * (steps - completed) < BRIEF_SECONDS
        first, completed = (
            completed,
            run_piece(
                *(table(workers), steps, completed, workers, scratch(workers), state, inline),
                watch=None if is_given else watch,
                deadline=time.monotonic_ns() + int(1e9 * BRIEF_SECONDS) if inline else 0,
                limit=limit,
            ),
        )
        now = time.perf_counter()
        choice.note_steps(completed - first, now - watch.begin)
        if not is_given:
            choice.note(workers, completed - first, now - watch.begin, watch.delays, now)
        if completed >= steps or state[State.STOP] or not state[State.CHANGE]:
            return workers
