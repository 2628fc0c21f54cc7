"""The first step of training in a new process, with an empty, a warmed and a kept cache of codelets, and with Keras.

python -m benchmarks.first_step [WORKLOAD ...] [--rounds N] [--later SECONDS]

The time begins after the import of Keras and ends after one step. With an empty cache a helper process compiles the
codelets that all programs share. It starts when the program first uses the API, whether the main program imports the
API or it is `imported by a module`. The case `alone` has no helper. `--later` adds a case in which the program imports
the API and then does other work for so many seconds, such as reading data.

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
import time
from pathlib import Path

from benchmarks.race import LIMIT, ROOT, Contender
from engine.codelets.ahead import made_in
from engine.machine_code.helper_process import VARIABLE, is_locked

ROUNDS = 3
MODELS = ("mlp", "100 dense layers", "resnet50", "encoder, 2 layers")
PACKAGES = ("engine", "ipu", "keras_ext", "benchmarks")
STEPS = 1
"""Steps of the epoch after the first step; the epoch is not measured."""
MAIN_PROGRAM = "benchmarks.program"
"""A contender whose main program imports the API."""
Times = tuple[float, float]
"""Seconds by the clock, and seconds of the processor."""


def first_step(name: str, way: str, cache: Path, module: str = "benchmarks.contender", **environment: str) -> Times:
    """The times of a new process whose compiled codelets are in `cache`; wait for the helper that fills the cache."""
    os.environ.update(environment)
    try:
        contender = Contender.run(way, [module, name, way, str(STEPS)], cache=cache)
        contender.stop()
    finally:
        for each in environment:
            del os.environ[each]
    until_made(cache)
    return contender.first_step, contender.first_processor


def until_made(cache: Path) -> None:
    """Wait for the end of a process that compiles ahead. Raise RuntimeError if it does not end, or has failed."""
    limit = time.monotonic() + LIMIT
    folders = list((cache / "software-ipu").glob("ahead-*"))
    while any(is_locked(folder / "lock") for folder in folders) and time.monotonic() < limit:
        time.sleep(0.05)
    if not all(made_in(folder).exists() for folder in folders):
        raise RuntimeError(
            f"Expected all codelets to be compiled beside a program within {LIMIT:g} s. Received: some are missing."
        )


def round_of(name: str, later: float) -> dict[str, Times]:
    """The times of each case, by its name."""
    with tempfile.TemporaryDirectory() as parent:
        cases = ("empty", "module", "alone", "warmed", "later")
        empty, module, alone, warmed, used_later = (Path(parent, case) for case in cases)
        command = [sys.executable, "-m", "ipu", "cache", "--warm"]
        subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": str(warmed)}, check=True, capture_output=True)
        ours = {"empty": first_step(name, "ipu,single", empty, MAIN_PROGRAM)}
        ours["empty, imported by a module"] = first_step(name, "ipu,single", module)
        if later:
            clock, cpu = first_step(name, f"ipu,single,later={later}", used_later)
            ours[f"empty, {later:g} s later"] = clock - later, cpu
        ours["empty, alone"] = first_step(name, "ipu,single", alone, **{VARIABLE: "0"})
        ours["warmed"] = first_step(name, "ipu,single", warmed)
        ours["kept"] = first_step(name, "ipu,single", empty)
        return ours | {"keras,jit": first_step(name, "keras,jit", empty)}


def main() -> None:
    """Print a line for each workload."""
    parser = argparse.ArgumentParser("python -m benchmarks.first_step", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--later", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args()
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=1)
    for name in options.workloads:
        rounds = [round_of(name, options.later) for _ in range(options.rounds)]
        least = {case: [min(each[case][k] for each in rounds) for k in (0, 1)] for case in rounds[0]}
        print(f"{name}: " + ", ".join(f"{case} {clock:.2f} ({cpu:.2f})" for case, (clock, cpu) in least.items()))


if __name__ == "__main__":
    main()
