"""Sums of partial results on several tiles: one stage or two, whichever takes fewer cycles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

from engine.profile.exchange import exchange_cycles
from engine.profile.vertices import vertex_cycles
from engine.target import Target

PARTIAL_BYTES = 4


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """Stages after the first superstep, and their cycles."""

    compute: int = 0
    exchange: int = 0
    stages: int = 0


@lru_cache(maxsize=4096)
def plan_reduction(parts: int, results: int, target: Target) -> ReductionPlan:
    """The cheapest plan to add up `parts` partial results, on different tiles, for each of `results` sums."""
    if parts <= 1 or results <= 0:
        return ReductionPlan()
    plans = [_staged((parts,), results, target)]
    for first in sorted({2**k for k in range(1, 11)} | {isqrt(parts - 1) + 1}):
        if first < parts:
            plans.append(_staged((first, -(-parts // first)), results, target))
    return min(plans, key=lambda p: p.compute + p.exchange + p.stages * target.sync_cycles)


def _staged(stages: tuple[int, ...], results: int, target: Target) -> ReductionPlan:
    """Cost of stages that add up `stages[k]` parts; sums, and groups of later stages, are spread over the tiles."""
    compute = exchange = 0
    for at, parts in enumerate(stages):
        groups = results
        for later in stages[at + 1 :]:
            groups *= later
        received = parts * -(-groups // target.tiles)
        compute += vertex_cycles((("reduce", "f32"),), received, target)
        exchange += exchange_cycles(received * PARTIAL_BYTES, target)
    return ReductionPlan(compute, exchange, len(stages))
