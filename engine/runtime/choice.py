"""How many workers take part, when other threads and processes use the cores too.

Workers meet many times in each step, so one without a core holds up all. This shows as time for which they could have
run but did not. Then, and only then, fewer workers are tried, and whoever makes a step in less time goes on. After a
while the other way is tried again, for a short time: others come and go. All numbers of workers compute the same bits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.runtime.delays import idle_seconds

logger = logging.getLogger("ipu")

WINDOW_SECONDS = 0.02
"""What is decided is decided by at least so much: several time slices of the system."""
FIRST_WAIT, LONGEST_WAIT = 0.03, 0.8
"""Seconds until the other way is tried again: twice as long each time it has been the worse."""
LONGEST_TRUST = 4.0
"""Seconds after which all workers are tried even where no core seems idle."""
LOSER = 0.05
"""The share of its time that a worker with a core of its own never loses."""
LEAST_CROWD = 0.1
"""The share of a window that workers must have lost together for cores to count as crowded. Chosen by hand."""
FEWER_BETTER, MORE_BETTER = 0.95, 0.8
"""A step must take so much less time for another way to be taken: more workers also make others move."""


@dataclass
class Window:
    """What so many workers have done in some time, and for how many seconds each was kept from running."""

    workers: int
    steps: int = 0
    seconds: float = 0.0
    delays: list[float] = field(default_factory=list)

    def add(self, steps: int, seconds: float, delays: Sequence[float]) -> None:
        """Some more steps of the same workers."""
        self.steps += steps
        self.seconds += seconds
        self.delays = [a + b for a, b in zip(self.delays or [0.0] * self.workers, delays, strict=True)]

    @property
    def step_seconds(self) -> float:
        """The time of a step."""
        return self.seconds / max(self.steps, 1)


def losers(seconds: float, delays: Sequence[float]) -> int:
    """How many workers others have kept from running.

    None, if fewer workers cannot be faster: all go on while the slowest does, so delays add up, and without the
    losers the others would take their share of the work.
    """
    lost = [delay for delay in delays if delay > LOSER * seconds]
    return len(lost) if sum(lost) > max(LEAST_CROWD, 0.5 * len(lost) / max(len(delays), 1)) * seconds else 0


class WorkerChoice:
    """The number of workers for the next steps of a program, from what its last steps took. Times are in seconds.

    `idle` says for how long the cores together have had nothing to do, since whenever; infinity if that is not known.
    While fewer workers leave none of them idle, more are hardly ever tried.
    """

    def __init__(self, idle: Callable[[], float] = idle_seconds) -> None:
        self._idle = idle
        self.step_seconds = math.inf
        """What a step took lately, with its share of a start and an end; infinity before the first."""
        self._begin(0)

    def _begin(self, most: int) -> None:
        self._most = most
        self._fewer: int | None = None
        self._prefers_fewer = False
        self._best = 0.0
        self._wait = FIRST_WAIT
        self._retry_at = self._trust_until = 0.0
        self._idle_before = 0.0, 0.0
        self._tries_other = False
        self._window = Window(0)

    @property
    def is_crowded(self) -> bool:
        """Whether others used the cores when this was last looked at."""
        return self._fewer is not None

    def workers(self, most: int, now: float) -> int:
        """How many of at most `most` workers the next steps should have."""
        if most != self._most:
            self._begin(most)
        self._tries_other = self._fewer is not None and now >= self._retry_at
        if self._tries_other and self._prefers_fewer and now < self._trust_until and not self._has_room(now):
            self._retry_at, self._tries_other = now + self._wait, False
            self._idle_before = now, self._idle()
            self._wait = min(2 * self._wait, LONGEST_WAIT)
        if self._fewer is None or self._prefers_fewer == self._tries_other:
            return most
        return self._fewer

    def _has_room(self, now: float) -> bool:
        """Whether some of the missing workers could have had a core since this was last asked."""
        assert self._fewer is not None
        (then, before), idle = self._idle_before, self._idle()
        return idle == math.inf or idle - before > 0.5 * (self._most - self._fewer) * (now - then)

    def patience(self, now: float) -> float:
        """For how long the steps that begin now may go on before the choice is made again."""
        if self._fewer is None or self._tries_other:
            return WINDOW_SECONDS
        return max(self._retry_at - now, 0.001)

    def note_steps(self, steps: int, seconds: float) -> None:
        """So many steps have been made in so many seconds, by any number of workers."""
        if steps:
            self.step_seconds = seconds / steps

    def note(self, workers: int, steps: int, seconds: float, delays: Sequence[float], now: float) -> None:
        """So many workers have made so many steps; each was kept from running for some seconds."""
        if self._window.workers != workers:
            self._window = Window(workers)
        self._window.add(steps, seconds, delays)
        if self._window.seconds >= WINDOW_SECONDS and self._window.steps:
            window, self._window = self._window, Window(workers)
            self._decide(window, now)

    def _decide(self, window: Window, now: float) -> None:
        crowd = losers(window.seconds, window.delays)
        if window.workers == self._most and not crowd:
            if self._prefers_fewer:
                logger.debug("The cores are free again: %d workers.", self._most)
            self._fewer, self._prefers_fewer = None, False
        elif self._fewer is None:
            self._fewer = max(1, self._most - crowd)
            self._best, self._wait, self._retry_at = window.step_seconds, FIRST_WAIT, now
        elif (window.workers == self._fewer) == self._prefers_fewer:
            self._best = window.step_seconds
            if crowd and self._prefers_fewer and self._fewer > 1:
                self._fewer = max(1, self._fewer - crowd)
        else:
            self._compare(window, now)

    def _compare(self, window: Window, now: float) -> None:
        """The other way has been tried."""
        self._trust_until = now + LONGEST_TRUST
        if window.step_seconds < (MORE_BETTER if self._prefers_fewer else FEWER_BETTER) * self._best:
            logger.debug(
                "Other threads use the cores: %d of %d workers, %.3f ms a step instead of %.3f.",
                *(window.workers, self._most, 1e3 * window.step_seconds, 1e3 * self._best),
            )
            self._prefers_fewer = not self._prefers_fewer
            self._best, self._wait = window.step_seconds, FIRST_WAIT
        else:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
        self._retry_at = now + self._wait
        self._idle_before = now, self._idle()
