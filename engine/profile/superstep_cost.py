"""The cost of one superstep, from any estimator or planner."""

from __future__ import annotations

from engine.frozen import frozen


class Phases:
    """Something with cycles of compute, exchange and sync."""

    __slots__ = ()
    compute: int
    exchange: int
    sync: int

    @property
    def cycles(self) -> int:
        return self.compute + self.exchange + self.sync


@frozen
class SuperstepCost(Phases):
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
