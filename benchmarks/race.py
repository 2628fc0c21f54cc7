"""Lets contenders do rounds of a workload in turn, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.workloads import Workload

ROOT = Path(__file__).parent.parent
OURS = "ipu"
KERAS = ("keras,jit,execution", "keras,execution", "keras,jit", "keras")


def ways(workload: Workload) -> list[str]:
    """The ways that can be raced here: ours, Keras', and those of the libraries that are installed."""
    keras = [way for way in KERAS if workload.kind != "latency" or "execution" not in way]
    rivals = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
    return [OURS, *keras, *rivals]


@dataclass
class Contender:
    """One way, its process, and what it measured: seconds, MiB."""

    way: str
    process: subprocess.Popen[str]
    first_step: float = 0.0
    peak_memory: float = 0.0
    whole: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, workload: Workload, way: str) -> Contender:
        """Starts the process and waits for its first epoch."""
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.contender", workload.name, way]
        pipe = subprocess.PIPE
        contender = cls(way, subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        said = contender._said()
        contender.first_step, contender.peak_memory = said["first_step"], said["peak_memory"]
        return contender

    def round(self) -> None:
        """Has it do one round."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = self._said()
        self.whole.append(said["whole"])
        self.steady.append(said["steady"])

    def _said(self) -> dict[str, float]:
        assert self.process.stdout is not None and self.process.stderr is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"{self.way} ended: {self.process.stderr.read()[-2000:]}")

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
        """The best median of those ways over ours; None when there is none."""
        times = [statistics.median(getattr(each, measured)) for each in self.contenders if each.way.startswith(against)]
        return min(times) / statistics.median(getattr(self.ours, measured)) if times else None


def race(workload: Workload, rounds: int, among: list[str] | None = None) -> Race:
    """Starts every way, then lets each in turn do a round, so that a busy machine is unfair to none of them."""
    contenders: list[Contender] = []
    try:
        for way in among or ways(workload):
            contenders.append(Contender.start(workload, way))
        for _ in range(rounds):
            for each in contenders:
                each.round()
    finally:
        for each in contenders:
            each.stop()
    return Race(workload, contenders)
