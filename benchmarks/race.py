"""Runs contenders in turn on rounds of a workload, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.workloads import Workload

ROOT = Path(__file__).parent.parent
OURS = "ipu"
KERAS = ("keras,jit,execution", "keras,execution", "keras,jit", "keras")


def ways(workload: Workload) -> list[str]:
    """The ways available here: ours, Keras', and those of the installed libraries."""
    keras = [way for way in KERAS if workload.kind != "latency" or "execution" not in way]
    rivals = [name for name in ("jax", "torch") if importlib.util.find_spec(name) and workload.policy == "float32"]
    return [OURS, *keras, *rivals]


@dataclass
class Contender:
    """One way, its process, and its measurements: seconds, MiB."""

    way: str
    process: subprocess.Popen[str]
    errors: IO[str]
    first_step: float = 0.0
    peak_memory: float = 0.0
    whole: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, workload: Workload, way: str, cache: Path | None = None) -> Contender:
        """Starts the process, its compiled codelets in `cache`, and waits for its first epoch."""
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.contender", workload.name, way]
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"} | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
        pipe, errors = subprocess.PIPE, tempfile.TemporaryFile("w+")
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=env)
        contender = cls(way, process, errors)
        said = contender._said()
        contender.first_step, contender.peak_memory = said["first_step"], said["peak_memory"]
        return contender

    def round(self) -> None:
        """Runs one round; raises RuntimeError if the process has ended."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = self._said()
        self.whole.append(said["whole"])
        self.steady.append(said["steady"])

    def _said(self) -> dict[str, float]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        self.errors.seek(0)
        raise RuntimeError(f"Expected {self.way} to go on. Received: {self.errors.read()[-2000:]}")

    def stop(self) -> None:
        """Ends the process."""
        self.process.communicate()


@dataclass
class Race:
    """The contenders after their rounds."""

    workload: Workload
    contenders: list[Contender]

    @property
    def ours(self) -> Contender:
        return next(each for each in self.contenders if each.way == OURS)

    def ratio(self, measured: str = "whole", against: str = "keras") -> float | None:
        """The best median of the ways that start with `against` over ours; None when there is none."""
        times = [statistics.median(getattr(each, measured)) for each in self.contenders if each.way.startswith(against)]
        return min(times) / statistics.median(getattr(self.ours, measured)) if times else None

    def extra_info(self) -> dict[str, float]:
        """Values that pytest-benchmark stores with its own statistics: seconds, MiB, ratios."""
        info: dict[str, float] = {}
        for each in self.contenders:
            info[f"{each.way}: epoch"] = statistics.median(each.whole)
            info[f"{each.way}: steady step"] = statistics.median(each.steady)
            info[f"{each.way}: first step"] = each.first_step
            info[f"{each.way}: peak memory"] = each.peak_memory
        for against in ("keras", "jax", "torch"):
            ratio = self.ratio(against=against)
            if ratio is not None:
                info[f"ratio to {against}"] = ratio
        return info


@contextmanager
def started(workload: Workload, among: list[str]) -> Iterator[list[Contender]]:
    """The contenders, each after its first epoch; they end with the context."""
    contenders: list[Contender] = []
    try:
        for way in among:
            contenders.append(Contender.start(workload, way))
        yield contenders
    finally:
        for each in contenders:
            each.stop()


def race(workload: Workload, rounds: int, among: list[str] | None = None) -> Race:
    """Runs a round of each way in turn, so that a busy machine affects all alike."""
    with started(workload, among or ways(workload)) as contenders:
        for _ in range(rounds):
            for each in contenders:
                each.round()
    return Race(workload, contenders)
