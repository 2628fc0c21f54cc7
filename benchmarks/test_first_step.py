"""The time to the first finished step in new processes, with compiled codelets and without."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks.race import Contender
from benchmarks.workloads import WORKLOADS

ROUNDS = 3
MOST_SECONDS_COLD = 20.0


def seconds(name: str, way: str, cache: Path) -> float:
    """Seconds of a new process from after Keras' import to the end of one step."""
    contender = Contender.start(WORKLOADS[name], way, cache)
    contender.stop()
    return contender.first_step


@pytest.mark.parametrize(("name", "least_ratio"), [("mlp", 1.0), ("resnet20", 1.0), ("resnet50", 2.0)])
def test_warm(name: str, least_ratio: float, tmp_path: Path, benchmark: Any) -> None:
    seconds(name, "ipu,single", tmp_path)
    times: dict[str, list[float]] = {"ipu,single": [], "keras,jit": []}

    def turn(way: str) -> None:
        times[way].append(seconds(name, way, tmp_path))

    benchmark.pedantic(turn, args=("ipu,single",), setup=lambda: turn("keras,jit"), rounds=ROUNDS)
    ours, theirs = (statistics.median(each) for each in times.values())
    benchmark.extra_info.update({"first step, s": ours, "first step of Keras, s": theirs, "ratio": theirs / ours})
    assert theirs / ours >= least_ratio


def test_cold(tmp_path: Path, benchmark: Any) -> None:
    empty = (tmp_path / f"cache {number}" for number in range(ROUNDS))
    times: list[float] = []
    benchmark.pedantic(lambda: times.append(seconds("mlp", "ipu,single", next(empty))), rounds=ROUNDS)
    assert statistics.median(times) <= MOST_SECONDS_COLD
