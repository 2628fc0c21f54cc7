"""Speed-up by more workers: a workload's steps with 1, 2 and 4 workers alternately.

python -m benchmarks.scaling [--workers N ...] [--rounds N] [WORKLOAD ...]

The fastest of all steps counts, as other load only adds time. Steps get no new rows: all use the last rows.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.hot_spots import observed_programs
from benchmarks.kernels import Kernel, ticks_per_second
from benchmarks.workloads import WORKLOADS, Workload
from engine.runtime.executor import Column
from engine.runtime.threads import usable_cores


def kernel_of(workload: Workload) -> Kernel:
    """The workload's program with the most compute sets, after some steps of training."""
    from benchmarks.rivals.keras_fit import prepare

    programs = observed_programs()
    inputs, labels = workload.data(np.random.default_rng(0), workload.batch * workload.execution)
    prepare(workload, "ipu", [], inputs, labels)
    executable = max(programs, key=lambda each: len(each.program.compute_sets))

    def table(workers: int) -> np.ndarray:
        made = executable._table(False, workers).copy()
        made[: len(executable._infeeds), Column.RANGES :] = 0  # the feeds of the last call are freed
        return made

    return Kernel(workload.name, 1.0, table, executable._scratch_bytes, keep=[executable])


def main() -> None:
    """Read the command line, measure, print a line for each workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description="Speed by number of workers.")
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    options = parser.parse_args()
    counts = sorted({*options.workers, 1})
    console = Console(width=110)
    made = Table(title=f"Steps on {usable_cores()} cores", title_justify="left")
    made.add_column("workload")
    for workers in counts:
        made.add_column(f"ms, {workers} worker" + "s" * (workers > 1), justify="right")
        if workers > 1:
            made.add_column("x 1", justify="right")
    second = ticks_per_second()
    for name in options.workloads:
        if name not in WORKLOADS:
            parser.error(f"Expected workloads among {', '.join(WORKLOADS)}. Received: {name!r}")
        with console.status(f"measuring {name}"):
            kernel = kernel_of(WORKLOADS[name])
            for _ in range(options.rounds):
                for workers in counts:
                    kernel.time(workers)
        cells = [name]
        for workers in counts:
            cells.append(f"{kernel.least[workers] / second * 1e3:.3f}")
            if workers > 1:
                cells.append(f"{kernel.least[1] / kernel.least[workers]:.2f}")
        made.add_row(*cells)
    console.print(made)


if __name__ == "__main__":
    main()
