"""The first step of a training in a new process: with an empty cache of codelets, a warmed and a kept one; and Keras'.

python -m benchmarks.first_step [WORKLOAD ...] [--rounds N]

From after Keras' import to the end of one step. Prints the least of N rounds by the clock, and of the processor time of
all threads, both in seconds. Run it with nothing else running. Python's bytecode of the project is kept as that of
installed packages is: compiling the source files, which a process does that must not write it, takes as long as a step.
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
from benchmarks.workloads import WORKLOADS

ROUNDS = 3
PACKAGES = ("engine", "ipu", "keras_ext", "benchmarks")
Times = tuple[float, float]
"""By the clock and of the processor, in seconds."""


def first_step(name: str, way: str, cache: Path) -> Times:
    """The times of a new process whose compiled codelets are in `cache`."""
    contender = Contender.start(WORKLOADS[name], way, cache)
    contender.stop()
    return contender.first_step, contender.first_processor


def round_of(name: str) -> dict[str, Times]:
    """The times of each case, by its name."""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as warmed:
        command = [sys.executable, "-m", "ipu", "cache", "--warm"]
        subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": warmed}, check=True, capture_output=True)
        ours = {"empty": empty, "warmed": warmed, "kept": empty}
        times = {case: first_step(name, "ipu,single", Path(cache)) for case, cache in ours.items()}
        return times | {"keras,jit": first_step(name, "keras,jit", Path(empty))}


def main() -> None:
    """Prints a line for each workload."""
    parser = argparse.ArgumentParser("python -m benchmarks.first_step", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["mlp", "encoder, 2 layers", "resnet50"])
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
