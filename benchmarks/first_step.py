"""The first step of training in a new process, with an empty, a warmed and a kept cache of codelets, and with Keras.

python -m benchmarks.first_step [WORKLOAD ...] [--rounds N] [--cases CASE ...]

An installation compiles the codelets that all programs share, or has them, so its first program finds the cache warmed.
A round runs a process for each case. The benchmark prints, for each case, four least values of the rounds, in seconds:
from the import of Keras to the end of one step, by the clock and of the processor time of all threads, and the same
from the start of the process. Then it prints the third and fourth of ours, as multiples of the lesser of Keras with and
without `jit_compile`.

On a busy machine only processor time can be compared. The benchmark first compiles the project's Python files to
bytecode, as an installation does: a process that must not write bytecode compiles in each run, which takes as long as a
step.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.race import ROOT, Contender

ROUNDS = 3
MODELS = ("mlp", "100 dense layers", "resnet50", "encoder, 2 layers")
PACKAGES = ("engine", "ipu", "keras_ext", "benchmarks")
OURS = ("empty", "warmed", "kept")
KERAS = ("keras,jit", "keras")
STEPS = 1
"""Steps of the epoch after the first step; the epoch is not measured."""
Times = tuple[float, float, float, float]
"""Seconds by the clock and of the processor after the import of Keras, and both for the whole process."""


def first_step(name: str, way: str, cache: Path) -> Times:
    """The times of a new process whose compiled codelets are in `cache`."""
    contender = Contender.run(way, ["benchmarks.contender", name, way, str(STEPS)], cache=cache)
    contender.stop()
    return contender.first_step, contender.first_processor, *contender.start_to_first


def round_of(name: str, cases: list[str], warmed: Path) -> dict[str, Times]:
    """The times of each case, by its name; `warmed` has an installation's codelets."""
    with tempfile.TemporaryDirectory() as parent:
        empty, copy = Path(parent, "empty"), Path(parent, "warmed")
        shutil.copytree(warmed, copy)
        found = {
            case: first_step(name, "ipu,single", empty if case == "empty" else copy) for case in OURS if case in cases
        }
        return found | {case: first_step(name, case, empty) for case in KERAS if case in cases}


def line_of(name: str, rounds: list[dict[str, Times]]) -> str:
    """The least values of all rounds, and ratios to the best Keras of the whole process."""
    least = {case: [min(each[case][k] for each in rounds) for k in range(4)] for case in rounds[0]}
    said = [f"{case} " + " ".join(f"{value:.2f}" for value in values) for case, values in least.items()]
    theirs = [values for case, values in least.items() if case in KERAS]
    for case in OURS if theirs else ():
        if case in least:
            clock, processor = (least[case][k] / min(each[k] for each in theirs) for k in (2, 3))
            said.append(f"{case} / Keras {clock:.2f} {processor:.2f}")
    return f"{name}: " + ", ".join(said)


def main() -> None:
    """Print a line for each workload."""
    parser = argparse.ArgumentParser("python -m benchmarks.first_step", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cases", nargs="+", choices=OURS + KERAS, default=OURS + KERAS)
    options = parser.parse_args()
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=1)
    with tempfile.TemporaryDirectory() as warmed:
        command = [sys.executable, "-m", "ipu", "cache", "--warm"]
        subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": warmed}, check=True, capture_output=True)
        for name in options.workloads:
            rounds = [round_of(name, options.cases, Path(warmed)) for _ in range(options.rounds)]
            print(line_of(name, rounds), flush=True)


if __name__ == "__main__":
    main()
