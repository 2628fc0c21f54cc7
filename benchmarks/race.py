"""Races of contenders, each in a process of its own, whose rounds of a workload alternate."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.round_trip import barrier_nanoseconds
from benchmarks.workloads import Workload

ROOT = Path(__file__).parent.parent
Say = Callable[[str], None]
OURS = "ipu"
KERAS = ("keras,jit,execution", "keras,execution", "keras,jit", "keras")
OPTIONAL = ("jax,execution", "jax", "torch,compile", "torch")
LIMIT = 300.0
"""Seconds after which a process that does not answer is killed."""


def silent(line: str) -> None:
    """Discard a line of progress."""


def ways(workload: Workload) -> tuple[list[str], dict[str, str]]:
    """The ways to run a workload on this machine, ours first, and the reasons why other ways are missing."""
    keras = [way for way in KERAS if workload.kind != "latency" or "execution" not in way]
    found, missing = [OURS, *keras], {}
    for way in OPTIONAL if workload.policy == "float32" else ():
        library, *options = way.split(",")
        if workload.kind != "fit" and "execution" in options:
            continue
        if importlib.util.find_spec(library) is None:
            missing[way] = "not installed"
        elif "compile" in options and not any(map(shutil.which, ("g++", "clang++"))):
            missing[way] = "needs a C++ compiler"
        else:
            found.append(way)
    return found, missing


@dataclass
class Contender:
    """A way, its process, and its measurements in seconds and MiB."""

    way: str
    process: subprocess.Popen[str]
    errors: IO[str]
    limit: float = LIMIT
    first_step: float = 0.0
    first_processor: float = 0.0
    """Processor time of all threads in the first step."""
    start_to_first: tuple[float, float] = (0.0, 0.0)
    """Seconds by the clock, and of the processor, from the start of the process to the end of the first step."""
    peak_memory: float = 0.0
    whole: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Processor time of all threads in each round."""

    @classmethod
    def start(cls, workload: Workload, way: str, cache: Path | None = None, limit: float = LIMIT) -> Contender:
        """Start the process, with its compiled codelets in `cache`, and wait for its first epoch.

        Raises RuntimeError, as `round` does, if the process fails or takes longer than `limit` seconds.
        """
        return cls.run(way, ["benchmarks.contender", workload.name, way, str(workload.steps)], limit, cache)

    @classmethod
    def run(cls, way: str, module: list[str], limit: float = LIMIT, cache: Path | None = None) -> Contender:
        """Start a process that runs the module and the arguments in `module`."""
        command = [sys.executable, "-W", "ignore", "-m", *module]
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"} | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
        pipe, errors = subprocess.PIPE, tempfile.TemporaryFile("w+")
        began = time.time()
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=env)
        contender = cls(way, process, errors, limit)
        try:
            said = contender._said()
        except BaseException:
            process.kill()
            contender.stop()
            raise
        contender.first_step, contender.peak_memory = said["first_step"], said["peak_memory"]
        contender.first_processor = said.get("first_processor", 0.0)
        if "first_ended" in said:
            contender.start_to_first = said["first_ended"] - began, said["whole_processor"]
        return contender

    def round(self, workers: int | None = None) -> None:
        """Run one round, of our way with `workers`; raise RuntimeError if the process has ended or takes too long."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{workers or ''}\n")
        self.process.stdin.flush()
        said = self._said()
        self.whole.append(said["whole"])
        self.steady.append(said["steady"])
        self.processor.append(said["processor"])

    def _said(self) -> dict[str, float]:
        assert self.process.stdout is not None
        watch = threading.Timer(self.limit, self.process.kill)
        watch.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):
                    return dict(json.loads(line))
        finally:
            watch.cancel()
            watch.join()
        if self.process.wait() == -9:
            raise RuntimeError(f"Expected {self.way} to answer within {self.limit:g} s. It was killed.")
        self.errors.seek(0)
        said = self.errors.read().strip()[-2000:] or "nothing"
        raise RuntimeError(f"Expected {self.way} to go on. It ended, and said: {said}")

    def stop(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):
            self.process.communicate()


@dataclass
class Race:
    """The contenders after their rounds, and the reasons why other ways are missing."""

    workload: Workload
    contenders: list[Contender]
    missing: dict[str, str] = field(default_factory=dict)
    barriers: list[float] = field(default_factory=list)
    """Nanoseconds of an empty barrier of all workers before and after the rounds; none for one worker."""

    @property
    def ours(self) -> Contender:
        return next(each for each in self.contenders if each.way == OURS)

    def ratio(self, measured: str = "whole", against: str = "keras") -> float | None:
        """The best median of the ways that begin with `against`, divided by ours; None if there is no such way."""
        times = [statistics.median(getattr(each, measured)) for each in self.contenders if each.way.startswith(against)]
        return min(times) / statistics.median(getattr(self.ours, measured)) if times else None

    def figures(self) -> dict[str, dict[str, float]]:
        """Milliseconds of a step, of its processor time and between executions; first step in seconds, peak in MiB."""
        steps = self.workload.steps
        return {
            each.way: {
                "step": 1e3 * statistics.median(each.whole) / steps,
                "processor": 1e3 * statistics.median(each.processor) / steps,
                "steady": 1e3 * statistics.median(each.steady),
                "first step": each.first_step,
                "peak": each.peak_memory,
            }
            for each in self.contenders
        }

    def extra_info(self) -> dict[str, float]:
        """Values that pytest-benchmark stores with its own statistics: the values of `figures`, and ratios."""
        info = {f"{way}: {name}": value for way, found in self.figures().items() for name, value in found.items()}
        for against in ("keras", "jax", "torch"):
            ratio = self.ratio(against=against)
            if ratio is not None:
                info[f"ratio to {against}"] = ratio
        return info


@contextmanager
def started(workload: Workload, among: list[str], limit: float = LIMIT, say: Say = silent) -> Iterator[Race]:
    """A race whose contenders have run their first epoch; they end with the context.

    A contender that fails is missing from the race. If it is ours, RuntimeError is raised.
    """
    made = Race(workload, [])
    try:
        for way in among:
            with missing_if_failed(made, way, say):
                made.contenders.append(Contender.start(workload, way, limit=limit))
                say(f"{workload.name}: {way} started in {made.contenders[-1].first_step:.1f} s")
        yield made
    finally:
        for each in made.contenders:
            each.stop()


@contextmanager
def missing_if_failed(made: Race, way: str, say: Say) -> Iterator[None]:
    """A context that notes why a way failed in it; an error of our way is raised."""
    try:
        yield
    except (RuntimeError, BrokenPipeError) as error:
        if way == OURS:
            raise
        made.missing[way] = "failed: " + str(error).splitlines()[-1][:200]
        say(f"{made.workload.name}: {way} {made.missing[way]}")
        for each in [each for each in made.contenders if each.way == way]:
            made.contenders.remove(each)
            each.stop()


def race(
    workload: Workload, rounds: int, among: list[str] | None = None, limit: float = LIMIT, say: Say = silent
) -> Race:
    """Run a round of each way after the other, so that a busy machine affects all alike; `say` gets the progress."""
    found, missing = ways(workload)
    with started(workload, among or found, limit, say) as made:
        made.missing |= {} if among else missing
        before = barrier_nanoseconds()
        for number in range(rounds):
            for each in list(made.contenders):
                with missing_if_failed(made, each.way, say):
                    each.round()
            say(f"{workload.name}: round {number + 1} of {rounds}")
        made.barriers = [each for each in (before, barrier_nanoseconds()) if each]
    return made
