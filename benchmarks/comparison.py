"""The same work done in several ways, turn by turn, so that a busy machine is unfair to none of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

OURS = "software IPU"


@dataclass
class Comparison:
    """Seconds of each way to do `work`, one number for each round; OURS is one of the ways."""

    work: str
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def take(self, way: str, measured: Callable[[], float]) -> None:
        """Does the work once in one way; `measured` returns how many seconds that took."""
        self.seconds.setdefault(way, []).append(measured())

    def median(self, way: str) -> float:
        return statistics.median(self.seconds[way])

    @property
    def ratio(self) -> float:
        """How many times as long as ours the best of the other ways takes."""
        return min(self.median(way) for way in self.seconds if way != OURS) / self.median(OURS)

    def extra_info(self) -> dict[str, float]:
        """What pytest-benchmark stores with its own statistics: medians in seconds, and the ratio."""
        return {**{f"median of {way}": self.median(way) for way in self.seconds}, "ratio": self.ratio}

    def lines(self) -> list[str]:
        """A small table: median seconds, and how many times ours."""
        rows = [
            f"  {way:32}{self.median(way):>9.3f} s{self.median(way) / self.median(OURS):>8.2f}x" for way in self.seconds
        ]
        return [self.work, *rows]
