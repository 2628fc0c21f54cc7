"""Time limit of a call: the time at which its workers must have ended, and the error if they have not."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from engine.errors import CallTimeout, ConfigurationError


@dataclass(frozen=True)
class TimeLimit:
    """A limit of `seconds` seconds that ends at time `end` of the monotonic clock."""

    seconds: float
    end: float

    def left(self) -> float:
        """Seconds until the end, at least 0."""
        return max(0.0, self.end - time.monotonic())

    def error(self, received: str) -> CallTimeout:
        """The error of a call that has taken longer; `received` says where it was."""
        return CallTimeout(
            f"Expected a call that ends within {self.seconds:g} seconds. Received: {received}. Variables are as after "
            "the last whole step, and the program can be run again. Give a longer timeout, or inputs with which its "
            "loops end."
        )


def time_limit(seconds: float | None) -> TimeLimit | None:
    """A limit that begins now; None for None. Raises ConfigurationError unless `seconds` is a finite number above 0."""
    if seconds is None:
        return None
    is_number = isinstance(seconds, int | float | np.integer | np.floating) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        raise ConfigurationError(
            f"Expected timeout to be a number of seconds above 0, or None for no limit. Received: {seconds!r}."
        )
    return TimeLimit(float(seconds), time.monotonic() + float(seconds))
