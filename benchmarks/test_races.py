"""Races of every workload against others, such as `pytest benchmarks -k mlp`; fails below the promised ratio."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.race import Race, started, ways
from benchmarks.workloads import WORKLOADS

ROUNDS = 5


@pytest.mark.parametrize("name", WORKLOADS)
def test_race(name: str, benchmark: Any, races: list[Race]) -> None:
    workload = WORKLOADS[name]
    with started(workload, ways(workload)[0]) as race:

        def others() -> None:
            for each in race.contenders[1:]:
                each.round()

        benchmark.pedantic(race.ours.round, setup=others, rounds=ROUNDS)
    benchmark.extra_info.update(race.extra_info())
    races.append(race)
    ratio = race.ratio()
    assert ratio is not None
    assert ratio >= workload.least_ratio
