"""The cost of one superstep, from any estimator or planner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SuperstepCost:
    """Cycles, number of tiles used, and temporary bytes that each tile holds for this superstep alone.

    Of the temporary bytes, `received_bytes` come by exchange. `method` is the vertex that a planner has chosen.
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
