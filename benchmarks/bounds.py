"""The bound of a training step: the time of its multiply-adds at the rate of a loop without anything else.

python -m benchmarks.bounds [WORKLOAD ...] [--rounds N] [--keep]

A process for each workload alternates epochs and that loop on all workers, so that the clock is the same for both. At a
share of 100 % only fewer multiplications would make a step faster. Only float32 is measured, because 16-bit floats and
matrix registers have other peaks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.race import ROOT
from benchmarks.workloads import WORKLOADS
from engine.codelets.convolutions.cook_toom import positions
from engine.program.program import ComputeSet
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction
from engine.program.work.winograd import WinogradProduct
from engine.program.work.winograd_gradient import WinogradGradient

KIND = "bounds"
NAMES = [name for name, each in WORKLOADS.items() if each.kind == "fit" and each.policy == "float32"]


def run_multiply_adds(compute_set: ComputeSet) -> int:
    """The multiply-adds of one call of a compute set. A transform has fewer than the estimate for the chip."""
    counts = [_of_work(each) for each in _works(compute_set.work)]
    known = [each for each in counts if each is not None]
    return sum(known) if known else compute_set.work_estimate.multiply_adds


def _works(value: Any) -> Iterator[Work]:
    """Yield a work and all works that are parts of it."""
    if isinstance(value, tuple):
        for each in value:
            yield from _works(each)
    elif is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, Work):
            yield value
        for each in fields(value):
            yield from _works(getattr(value, each.name))


def _of_work(work: Work) -> int | None:
    """The multiply-adds of a product; None for other work."""
    if isinstance(work, Contraction):
        return int(np.prod(work.size))
    if isinstance(work, WinogradProduct | WinogradGradient):
        tiles = [-(-each // work.tile) for each in work.field]
        return work.images * tiles[0] * tiles[1] * positions(work.tile) * work.features * work.outputs
    return None


def measured_here(name: str, rounds: int) -> dict[str, float]:
    """Measure in this process the GFLOP of a step, the loop's GFLOP/s, a step's milliseconds, and the bound's share.

    The loop runs on all workers.
    """
    from benchmarks.hot_spots import microseconds_per_row, observed_programs
    from benchmarks.kernels import of_codelet, ticks_per_second
    from benchmarks.peaks import peak, peak_multiply_adds
    from benchmarks.rivals.keras_fit import prepare
    from engine.runtime.executor import COMPUTING, Column
    from engine.runtime.threads import usable_cores

    workload, programs = WORKLOADS[name], observed_programs()
    round_of = prepare(workload, "ipu", [], *workload.data(np.random.default_rng(0), workload.samples))
    executable = max(programs, key=lambda each: len(each.program.compute_sets))
    table, _, calls = microseconds_per_row(executable)
    rows = [row for row in range(len(table)) if table[row, Column.KIND] in COMPUTING]
    sets = zip(rows, executable._all_sets, strict=False)
    total = sum(float(calls[row]) * run_multiply_adds(each) for row, each in sets)
    workers, second = usable_cores(), ticks_per_second()
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
    return {"gflop": 2e-9 * total, "peak": 2e-9 * rate, "step": 1e3 * step, "share": total / rate / step}


def measured(name: str, rounds: int) -> dict[str, float]:
    """Measure in a process of its own; raise CalledProcessError if that fails."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bounds", name, "--rounds", str(rounds), "--here"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Read the command line, measure, print a row for each workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds", description="What bounds training steps.")
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="keep the shares as this processor's, for benchmarks.page")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [each for each in options.names if each not in NAMES]:
        parser.error(f"expected workloads among {', '.join(NAMES)}; received {', '.join(unknown)}")
    if options.here:
        print(json.dumps(measured_here(options.names[0], options.rounds)), flush=True)
        return
    from benchmarks.figures import Figures

    made = Table("workload", "GFLOP a step", "peak, GFLOP/s", "bound, ms", "step, ms", "share", title="Bounds")
    for name in options.names or NAMES:
        found = measured(name, options.rounds)
        bound = found["share"] * found["step"]
        cells = f"{found['gflop']:.3f}", f"{found['peak']:.0f}", f"{bound:.3f}", f"{found['step']:.3f}"
        made.add_row(name, *cells, f"{100 * found['share']:.0f} %")
        if options.keep:
            Figures.here().add(KIND, name, found)
    Console(width=110).print(made)


if __name__ == "__main__":
    main()
