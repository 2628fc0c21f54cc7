"""How long a user waits for the first finished step: in new processes, with compiled codelets and without."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.comparison import OURS, Comparison

ROOT = Path(__file__).parent.parent
ROUNDS = 3
MOST_SECONDS_COLD = 20.0


def first_step(where: str, cache: Path) -> tuple[float, str]:
    """Trains one step in a new process whose caches lie in `cache`; the seconds, and what it said on stderr."""
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
    return float(done.stdout.rpartition("seconds to first step:")[2]), done.stderr


def compare(work: str, ours: Callable[[], float], cache: Path, benchmark: Any) -> Comparison:
    """Our first step and Keras' in turn."""
    comparison = Comparison(work)

    def let_keras_run() -> None:
        comparison.take("Keras, jit_compile=True", lambda: first_step("keras", cache)[0])

    benchmark.pedantic(lambda: comparison.take(OURS, ours), setup=let_keras_run, rounds=ROUNDS)
    benchmark.extra_info.update(comparison.extra_info())
    return comparison


def test_first_step_cold(tmp_path: Path, benchmark: Any, comparisons: list[Comparison]) -> None:
    empty = (tmp_path / f"cache {number}" for number in range(ROUNDS))

    def ours() -> float:
        seconds, said = first_step("ipu", next(empty))
        assert "compiling" in said, "the user sees no progress"
        return seconds

    work = "first step of the MLP in a new process, first use on a machine"
    comparisons.append(compare(work, ours, tmp_path, benchmark))
    assert comparisons[-1].median(OURS) <= MOST_SECONDS_COLD


def test_first_step_warm(tmp_path: Path, benchmark: Any, comparisons: list[Comparison]) -> None:
    first_step("ipu", tmp_path)
    work = "first step of the MLP in a new process, codelets compiled before"
    comparisons.append(compare(work, lambda: first_step("ipu", tmp_path)[0], tmp_path, benchmark))
    assert comparisons[-1].ratio >= 1.0
