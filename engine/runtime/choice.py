"""The number of workers, when other threads and processes use the cores too, or the cores are far apart.

Workers wait at many barriers in each step, so one without a core delays all. Its delay shows as time for which it was
runnable but did not run. The engine then tries fewer workers and keeps the faster number. After a while it briefly
tries the other number again, because the load changes. For short steps, in which cache lines that move between cores
may cost more than the work, it tries fewer workers at times as well: the host of a virtual machine moves its cores. All
numbers of workers compute the same bits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.runtime.delays import idle_seconds

logger = logging.getLogger("ipu")

WINDOW_SECONDS = 0.02
"""Shortest measurement on which a decision is based: several time slices of the scheduler."""
FIRST_WAIT, LONGEST_WAIT = 0.03, 0.8
"""Seconds until the other number of workers is tried again, doubled each time it was slower."""
LONGEST_TRUST = 4.0
"""Seconds after which all workers are tried even where no core seems idle."""
LOSER = 0.05
"""A worker that loses more than this fraction of its time shares its core."""
LEAST_CROWD = 0.1
"""Fraction of a window that workers must have lost together for cores to count as crowded."""
DISTURBED = 2.0
"""A call that takes this multiple of the last one's time is disturbed."""
FEWER_BETTER, MORE_BETTER = 0.95, 0.8
"""A switch to fewer or to more workers needs a step time below this multiple: more workers displace other threads."""

SHORT_STEP = 4e-4
"""Longest step, in seconds, for which fewer workers may be faster on free cores."""
FIRST_TRIAL, LONGEST_PAUSE, LONGER = 0.1, 8.0, 5
"""Seconds of steps before fewer workers are first tried on free cores, and most until the next trial; each pause is
LONGER times the one before. The time between calls does not count, so programs of short calls are not always on trial.
"""
SLOWED = 1.3
"""Fewer workers are tried at once when a step takes this multiple of its time at the last trial."""


@dataclass
class Window:
    """A measurement of `workers` workers: steps, seconds, and the seconds for which each was kept from running."""

    workers: int
    steps: int = 0
    seconds: float = 0.0
    delays: list[float] = field(default_factory=list)

    def add(self, steps: int, seconds: float, delays: Sequence[float]) -> None:
        """Adds steps of the same workers; `delays` has an entry for each."""
        self.steps += steps
        self.seconds += seconds
        self.delays = [a + b for a, b in zip(self.delays or [0.0] * self.workers, delays, strict=True)]

    @property
    def step_seconds(self) -> float:
        """Mean seconds of a step."""
        return self.seconds / max(self.steps, 1)


def losers(seconds: float, delays: Sequence[float]) -> int:
    """Number of workers that other threads have kept from running, given each worker's delay in `seconds` seconds.

    0 if fewer workers cannot be faster: each barrier waits for the slowest worker, so delays add up, and without the
    losers the others would do the losers' part of the work.
    """
    lost = [delay for delay in delays if delay > LOSER * seconds]
    return len(lost) if sum(lost) > max(LEAST_CROWD, 0.5 * len(lost) / max(len(delays), 1)) * seconds else 0


class WorkerChoice:
    """The number of workers for the next steps of a program, from the times of its last steps. Times are in seconds.

    `idle` returns the total idle time of the cores, from any origin; infinity if unknown.
    While fewer workers leave no core idle, more are hardly ever tried.
    """

    def __init__(self, idle: Callable[[], float] = idle_seconds) -> None:
        self._idle = idle
        self.step_seconds = math.inf
        """Seconds of a recent step, including its share of starting and joining threads; infinity before the first."""
        self._is_disturbed = False
        self._begin(0)

    def _begin(self, most: int) -> None:
        self._most = most
        self._fewer: int | None = None
        self._prefers_fewer = self._is_apart = False
        self._trial_at, self._pause, self._usual = math.inf, FIRST_TRIAL, 0.0
        self._ran = 0.0
        self._best = 0.0
        self._wait = FIRST_WAIT
        self._retry_at = self._trust_until = 0.0
        self._idle_before = 0.0, 0.0
        self._tries_other = False
        self._window = Window(0)

    @property
    def is_crowded(self) -> bool:
        """Whether other threads used the cores at the last decision."""
        return self._fewer is not None and not self._is_apart

    @property
    def has_two(self) -> bool:
        """Whether two numbers of workers are compared, so that each runs for a time only."""
        return self._fewer is not None

    @property
    def is_calm(self) -> bool:
        """Whether calls need not be measured: no other thread has used the cores lately."""
        return self._fewer is None and not self._is_disturbed

    def note_brief(self, seconds: float, had_cores: bool) -> None:
        """Records a call of one step, measured by its time alone, and whether its workers kept their cores.

        If the call was disturbed, the next calls are measured in full.
        """
        self._is_disturbed = not had_cores or seconds > DISTURBED * self.step_seconds
        self.step_seconds = seconds

    def note_alone(self, begin: float, now: float) -> None:
        """Records a call of one step by the calling thread alone."""
        self.note_steps(1, now - begin)
        self.note(1, 1, now - begin, [0.0], now)

    def workers(self, most: int, now: float) -> int:
        """The number of workers for the next steps, at most `most`."""
        if most != self._most:
            self._begin(most)
        self._tries_other = self._fewer is not None and now >= self._retry_at
        if self._tries_other and self._prefers_fewer and now < self._trust_until and not self._has_space():
            self._retry_at, self._tries_other = now + self._wait, False
            self._idle_before = self._ran, self._idle()
            self._wait = min(2 * self._wait, LONGEST_WAIT)
        if self._fewer is None or self._prefers_fewer == self._tries_other:
            return most
        return self._fewer

    def _has_space(self) -> bool:
        """Whether some of the omitted workers could have had a core in the steps since the last decision.

        Between the steps, other programs may have used all cores.
        """
        assert self._fewer is not None
        (then, before), idle = self._idle_before, self._idle()
        return idle == math.inf or idle - before > 0.5 * (self._most - self._fewer) * (self._ran - then)

    def patience(self, now: float) -> float:
        """Seconds for which the steps that begin now may run before the choice is made again."""
        if self._fewer is None or self._tries_other:
            return WINDOW_SECONDS
        return max(self._retry_at - now, 0.001)

    def note_steps(self, steps: int, seconds: float) -> None:
        """Records that `steps` steps took `seconds` seconds, with any number of workers."""
        if steps:
            self.step_seconds = seconds / steps

    def note(self, workers: int, steps: int, seconds: float, delays: Sequence[float], now: float) -> None:
        """Records steps of `workers` workers; `delays` are the seconds for which each was kept from running."""
        if self._window.workers != workers:
            self._window = Window(workers)
        self._window.add(steps, seconds, delays)
        self._ran += seconds
        if self._window.seconds >= WINDOW_SECONDS and self._window.steps:
            window, self._window = self._window, Window(workers)
            self._decide(window, now)

    def _decide(self, window: Window, now: float) -> None:
        self._is_disturbed = False
        crowd = losers(window.seconds, window.delays)
        self._is_apart = self._is_apart and not crowd
        if window.workers == self._most and not crowd and not self._is_apart:
            if self._prefers_fewer:
                logger.debug("The cores are free again: %d workers.", self._most)
            self._fewer, self._prefers_fewer = None, False
            self._begin_trial(window.step_seconds, now)
        elif self._fewer is None:
            self._fewer = max(1, self._most - crowd)
            self._best, self._wait, self._retry_at = window.step_seconds, FIRST_WAIT, now
        elif (window.workers == self._fewer) == self._prefers_fewer:
            self._best = window.step_seconds
            if crowd and self._prefers_fewer and self._fewer > 1:
                self._fewer = max(1, self._fewer - crowd)
        else:
            self._compare(window, now)

    def _begin_trial(self, step_seconds: float, now: float) -> None:
        """Tries half of the workers on free cores if steps are short, and have become slower or a trial is due."""
        if self._most == 1 or step_seconds > SHORT_STEP:
            return
        if self._trial_at == math.inf:
            self._trial_at = self._ran + FIRST_TRIAL
        if self._ran >= self._trial_at or step_seconds > SLOWED * self._usual > 0.0:
            self._fewer, self._is_apart = max(1, self._most // 2), True
            self._best = self._usual = step_seconds
            self._wait, self._retry_at = FIRST_WAIT, now

    def _end_trial(self) -> None:
        """Ends a trial on free cores: all workers go on."""
        self._fewer, self._is_apart = None, False
        self._pause = min(LONGER * self._pause, LONGEST_PAUSE)
        self._trial_at = self._ran + self._pause

    def _compare(self, window: Window, now: float) -> None:
        """Decides after a trial of the other number of workers."""
        self._trust_until = now + LONGEST_TRUST
        better = MORE_BETTER if self._prefers_fewer and not self._is_apart else FEWER_BETTER
        if window.step_seconds < better * self._best:
            logger.debug(
                "%s: %d of %d workers, %.3f ms a step instead of %.3f.",
                "The cores' distance has changed" if self._is_apart else "Other threads use the cores",
                *(window.workers, self._most, 1e3 * window.step_seconds, 1e3 * self._best),
            )
            self._prefers_fewer = not self._prefers_fewer
            self._best, self._wait = window.step_seconds, FIRST_WAIT
            if self._is_apart and not self._prefers_fewer:
                self._usual, self._pause = window.step_seconds, FIRST_TRIAL
        else:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
        if self._is_apart and not self._prefers_fewer:
            self._end_trial()
        self._retry_at = now + self._wait
        self._idle_before = self._ran, self._idle()
