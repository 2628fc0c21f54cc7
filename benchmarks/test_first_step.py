"""How long a user waits for the first finished step: in new processes, with compiled codelets and without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.comparison import OURS, Comparison

ROOT = Path(__file__).parent.parent
ROUNDS = 3
MOST_SECONDS_COLD = 20.0


def seconds_to_first_step(where: str, cache: Path) -> float:
    """Trains one step in a new process whose caches lie in `cache`."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_step", where],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.rpartition("seconds to first step:")[2])


def test_first_step_cold(tmp_path: Path, benchmark: Any, comparisons: list[Comparison]) -> None:
    comparison = Comparison("first step of the MLP in a new process, first use on this machine")
    empty = (tmp_path / str(number) for number in range(ROUNDS))

    def let_keras_run() -> None:
        comparison.take("Keras, jit_compile=True", lambda: seconds_to_first_step("keras", tmp_path))

    def run() -> None:
        comparison.take(OURS, lambda: seconds_to_first_step("ipu", next(empty)))

    benchmark.pedantic(run, setup=let_keras_run, rounds=ROUNDS)
    benchmark.extra_info.update(comparison.extra_info())
    comparisons.append(comparison)
    assert comparison.median(OURS) <= MOST_SECONDS_COLD


def test_first_step_warm(tmp_path: Path, benchmark: Any, comparisons: list[Comparison]) -> None:
    comparison = Comparison("first step of the MLP in a new process, codelets compiled before")
    seconds_to_first_step("ipu", tmp_path)

    def let_keras_run() -> None:
        comparison.take("Keras, jit_compile=True", lambda: seconds_to_first_step("keras", tmp_path))

    def run() -> None:
        comparison.take(OURS, lambda: seconds_to_first_step("ipu", tmp_path))

    benchmark.pedantic(run, setup=let_keras_run, rounds=ROUNDS)
    benchmark.extra_info.update(comparison.extra_info())
    comparisons.append(comparison)
    assert comparison.ratio >= 1.0
