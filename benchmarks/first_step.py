"""The first step of training in a new process, with an empty, a warmed and a kept cache of codelets, and with Keras.

python -m benchmarks.first_step [WORKLOAD ...] [--rounds N]

The time begins after the import of Keras and ends after one step. An installation compiles the codelets that all
programs share, or has them, so its first program finds the cache warmed.

The benchmark prints the least of N rounds by the clock, and of the processor time of all threads of the program's
process, both in seconds. Run it on an idle machine. It first compiles the project's Python files to bytecode, as an
installation does: a process that must not write bytecode compiles in each run, which takes as long as a step.
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.race import ROOT, Contender

ROUNDS = 3
MODELS = ("mlp", "100 dense layers", "resnet50", "encoder, 2 layers")
PACKAGES = ("engine", "ipu", "keras_ext", "benchmarks")
STEPS = 1
"""Steps of the epoch after the first step; the epoch is not measured."""
Times = tuple[float, float]
"""Seconds by the clock, and seconds of the processor."""


def first_step(name: str, way: str, cache: Path) -> Times:
    """The times of a new process whose compiled codelets are in `cache`."""
    contender = Contender.run(way, ["benchmarks.contender", name, way, str(STEPS)], cache=cache)
    contender.stop()
    return contender.first_step, contender.first_processor


def round_of(name: str) -> dict[str, Times]:
    """The times of each case, by its name."""
    with tempfile.TemporaryDirectory() as parent:
        empty, warmed = Path(parent, "empty"), Path(parent, "warmed")
        command = [sys.executable, "-m", "ipu", "cache", "--warm"]
        subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": str(warmed)}, check=True, capture_output=True)
        ours = {case: first_step(name, "ipu,single", folder) for case, folder in (("empty", empty), ("warmed", warmed))}
        ours["kept"] = first_step(name, "ipu,single", empty)
        return ours | {"keras,jit": first_step(name, "keras,jit", empty)}


def main() -> None:
    """Print a line for each workload."""
    parser = argparse.ArgumentParser("python -m benchmarks.first_step", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=1)
    for name in options.workloads:
        rounds = [round_of(name) for _ in range(options.rounds)]
        least = {case: [min(each[case][k] for each in rounds) for k in (0, 1)] for case in rounds[0]}
        print(f"{name}: " + ", ".join(f"{case} {clock:.2f} ({cpu:.2f})" for case, (clock, cpu) in least.items()))


if __name__ == "__main__":
    main()
