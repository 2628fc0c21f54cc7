"""The bounds of a training step: the time of its multiply-adds alone, and its roofline, which adds memory and barriers.

python -m benchmarks.bounds [WORKLOAD ...] [--rounds N] [--spots N] [--keep]

A process for each workload alternates epochs and a loop of multiply-adds on all workers, so that the clock is the same
for both. At a share of 100 % only fewer multiplications would make a step faster. Only float32 is measured, because
16-bit floats and matrix registers have other peaks. The roofline also has the operations of loops and transforms. The
last column, `alone`, compares the roofline of one worker with the least processor time of each compute set, which other
programs change little. `--spots` lists the compute sets that lose most there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.arithmetic import run_multiply_adds, run_operations
from benchmarks.race import ROOT
from benchmarks.workloads import WORKLOADS
from engine.program.program import ComputeSet

KIND = "bounds"
ROUNDS = 20
"""Times that each loop of the roofline runs."""
NAMES = [name for name, each in WORKLOADS.items() if each.kind == "fit" and each.policy == "float32"]


def measured_here(name: str, rounds: int, spots: int) -> dict[str, Any]:
    """Measure in this process the GFLOP of a step, the loop's GFLOP/s, a step's milliseconds, the bound's share, and
    what `roofline` returns.

    The loop runs on all workers.
    """
    from benchmarks.hot_spots import observed_programs
    from benchmarks.kernels import of_codelet, ticks_per_second
    from benchmarks.peaks import peak, peak_multiply_adds
    from benchmarks.rivals.keras_fit import prepare
    from engine.runtime.threads import usable_cores

    workload, programs = WORKLOADS[name], observed_programs()
    round_of = prepare(workload, "ipu", [], *workload.data(np.random.default_rng(0), workload.samples))
    executable = max(programs, key=lambda each: len(each.program.compute_sets))
    timed = timed_sets(executable)
    total = sum(float(each.calls) * run_multiply_adds(each.compute_set) for each in timed)
    workers, second = usable_cores(), ticks_per_second()
    under = roofline(timed, executable.plan.arena_bytes, workers, 1e9 / second, spots)
    loop = of_codelet("peak", peak_multiply_adds(), peak.address, np.array([1], np.int64), 0)
    round_of()
    steps, rates = list[float](), list[float]()
    for _ in range(rounds):
        steps.append(round_of())
        loop.least.clear()
        for _ in range(3):
            loop.time(workers)
        rates.append(loop.rate(workers) * workers * second)
    rate, step = statistics.median(rates), statistics.median(steps)
    found = {"gflop": 2e-9 * total, "peak": 2e-9 * rate, "step": 1e3 * step, "share": total / rate / step}
    return {**found, **under}


class Timed(NamedTuple):
    """A compute set, its calls in a step, and the least microseconds of all of them on one worker."""

    compute_set: ComputeSet
    calls: float
    microseconds: float


def timed_sets(executable: Any) -> list[Timed]:
    """Measures an executable's compute sets, in their order in its table, on one worker."""
    from benchmarks.hot_spots import microseconds_per_row
    from engine.runtime.executor import COMPUTING, Column

    table, spent, calls = microseconds_per_row(executable)
    rows = [row for row in range(len(table)) if table[row, Column.KIND] in COMPUTING]
    sets = executable._all_sets[: len(rows)]
    return [Timed(each, calls[row], spent[row]) for row, each in zip(rows, sets, strict=True)]


def roofline(timed: list[Timed], arena_bytes: int, workers: int, nanoseconds: float, spots: int) -> dict[str, Any]:
    """Measure the roofline's milliseconds on all workers, its share of the time on one, and lines about compute sets.

    `nanoseconds` are those of a tick. The lines are about the `spots` compute sets that lose most on one worker.
    """
    from benchmarks.hot_spots import describe
    from benchmarks.roofline import bounds_of, measured_roofs

    sets = [each.compute_set for each in timed]
    alone, together = (
        bounds_of(sets, measured_roofs(count, ROUNDS, nanoseconds), arena_bytes, run_operations)
        for count in (1, workers)
    )
    whole = sum(each.calls * bound.nanoseconds for each, bound in zip(timed, together, strict=True))
    least = [1e-3 * each.calls * bound.nanoseconds for each, bound in zip(timed, alone, strict=True)]
    lost = sorted(zip(timed, alone, least, strict=True), key=lambda each: each[2] - each[0].microseconds)[:spots]
    lines = [
        f"{each.microseconds - bound:9.1f} us lost of {each.microseconds:9.1f}, {found.cause:14}"
        + describe(each.compute_set)
        for each, found, bound in lost
    ]
    share = sum(least) / sum(each.microseconds for each in timed)
    return {"roofline": 1e-6 * float(whole), "alone": float(share), "spots": lines}


def measured(name: str, rounds: int, spots: int) -> dict[str, Any]:
    """Measures in a process of its own; raises CalledProcessError if that fails."""
    options = ["--rounds", str(rounds), "--spots", str(spots), "--here"]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bounds", name, *options]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Read the command line, measure, print a row for each workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds", description="What bounds training steps.")
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spots", type=int, default=0, help="compute sets to list that lose most")
    parser.add_argument("--keep", action="store_true", help="keep the shares as this processor's, for benchmarks.page")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [each for each in options.names if each not in NAMES]:
        parser.error(f"expected workloads among {', '.join(NAMES)}; received {', '.join(unknown)}")
    if options.here:
        print(json.dumps(measured_here(options.names[0], options.rounds, options.spots)), flush=True)
        return
    from benchmarks.figures import Figures

    headings = (
        "workload",
        "GFLOP a step",
        "peak, GFLOP/s",
        "bound, ms",
        "step, ms",
        "share",
        "roofline, ms",
        "share",
        "alone",
    )
    made = Table(*headings, title="Bounds")
    for name in options.names or NAMES:
        found = measured(name, options.rounds, options.spots)
        bound, step, roofline = found["share"] * found["step"], found["step"], found["roofline"]
        cells = f"{found['gflop']:.3f}", f"{found['peak']:.0f}", f"{bound:.3f}", f"{step:.3f}"
        made.add_row(
            name,
            *cells,
            f"{100 * found['share']:.0f} %",
            f"{roofline:.3f}",
            f"{100 * roofline / step:.0f} %",
            f"{100 * found['alone']:.0f} %",
        )
        print(*found.pop("spots"), sep="\n")
        if options.keep:
            Figures.here().add(KIND, name, found)
    Console(width=110).print(made)


if __name__ == "__main__":
    main()
