"""The cost of one superstep, from any estimator or planner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SuperstepCost:
    """Cycles, number of tiles used, and temporary bytes that each of them holds for this superstep alone.

    `received_bytes` of the temporary ones come by exchange; `method` is the vertex chosen by a planner.
    """

    compute: int
    exchange: int
    sync: int
    tiles: int
    temporary_bytes: int
    received_bytes: int = 0
    method: str = ""

    @property
    def cycles(self) -> int:
        return self.compute + self.exchange + self.sync
