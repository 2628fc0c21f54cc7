"""Workers from one to all cores: steps beside Keras with as many threads, and beside a prediction.

python -m benchmarks.many_cores [--workers N ...] [--minutes M] [WORKLOAD ...]

Nothing needs to be prepared, but the machine should be idle. When the time is up, rows that are left have no figures of
Keras. A process with N threads of Keras may use N cores.

The prediction scales each compute set's time on one worker as its roofline scales: by the measured rates of N workers,
their empty barrier, and the units of the busiest worker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.race import Contender
from benchmarks.workloads import WORKLOADS, Workload
from engine.machine_code.cores import full_cores
from engine.runtime.threads import usable_cores

DEFAULT = ("mlp", "lenet", "lstm", "encoder, 2 layers", "resnet20", "wide mlp")
KERAS = ("keras,execution", "keras,jit,execution")
ROUNDS = 3
TIMES = 12
"""Timed calls of a step table."""


@contextmanager
def only(cores: int) -> Iterator[None]:
    """Restricts this process, and what it starts meanwhile, to some of its cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(full_cores()[:cores]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def powers(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return sorted({*(1 << each for each in range(most.bit_length())), most})


def alone(name: str, counts: list[int]) -> dict[str, Any]:
    """Measures in this process: milliseconds of a step without new rows, as measured and as predicted, and rates."""
    from benchmarks.arithmetic import run_operations
    from benchmarks.bounds import timed_sets
    from benchmarks.kernels import ticks_per_second
    from benchmarks.roofline import bounds_of, measured_roofs
    from benchmarks.scaling import kernel_of

    kernel = kernel_of(WORKLOADS[name])
    executable, second = kernel.keep[0], ticks_per_second()
    timed = timed_sets(executable)
    sets = [each.compute_set for each in timed]
    roofs = {count: measured_roofs(count, 2, 1e9 / second) for count in counts}
    bounds = {count: bounds_of(sets, roofs[count], executable.plan.arena_bytes, run_operations) for count in counts}
    for _ in range(TIMES):
        for count in counts:
            kernel.time(count)
    return {
        "measured": {count: kernel.least[count] / second * 1e3 for count in counts},
        "predicted": {count: 1e-3 * _predicted(timed, bounds[1], bounds[count], count) for count in counts},
        "rates": {
            count: (each.barrier, 2 * each.multiply_adds, *(rate for _, rate in each.levels))
            for count, each in roofs.items()
        },
    }


def _predicted(timed: list[Any], one: list[Any], many: list[Any], workers: int) -> float:
    """Microseconds of a step of `workers` workers."""
    total = 0.0
    for each, alone, together in zip(timed, one, many, strict=True):
        units = 1 if each.compute_set.one_worker else max(each.compute_set.units, 1)
        even = units / workers / -(-units // workers)
        work, shared = max(alone.arithmetic, alone.memory), max(together.arithmetic, together.memory)
        scale = shared / work if work else 1 / workers
        total += max(each.microseconds, 0.0) * min(1.0, scale / even) + 1e-3 * each.calls * together.barrier
    return total


def measured_apart(name: str, counts: list[int]) -> dict[str, dict[int, Any]]:
    """Runs `alone` in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.many_cores", "--alone", name]
    command += ["--workers", *map(str, counts)]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    said = json.loads(done.stdout.strip().splitlines()[-1])
    return {kind: {int(count): value for count, value in found.items()} for kind, found in said.items()}


def beside_keras(workload: Workload, counts: list[int], end: float) -> tuple[dict[int, float], dict[int, float]]:
    """Milliseconds of a step by number of workers, ours and those of Keras' faster way, in alternating rounds."""
    ours, keras = dict[int, float](), dict[int, float]()
    us, ways = Contender.start(workload, "ipu"), list(KERAS)
    try:
        for count in reversed(counts):
            found = {}
            for way in ways:
                if time.monotonic() > end:
                    break
                with only(count):
                    them = Contender.start(workload, way)
                try:
                    ours[count] = min(ours.get(count, np.inf), _step(us, workload, count, them))
                finally:
                    them.stop()
                found[way] = 1e3 * statistics.median(them.whole) / workload.steps
            if count not in ours:
                ours[count] = _step(us, workload, count, None)
            if found:
                ways = [min(found, key=found.__getitem__)]
                keras[count] = found[ways[0]]
    finally:
        us.stop()
    return ours, keras


def _step(us: Contender, workload: Workload, workers: int, them: Contender | None) -> float:
    """Milliseconds of our step with so many workers, by alternating rounds."""
    before = len(us.whole)
    for _ in range(ROUNDS):
        us.round(workers)
        if them is not None:
            them.round()
    return 1e3 * statistics.median(us.whole[before:]) / workload.steps


def rates_table(found: dict[int, Any]) -> Table:
    """Barriers, multiply-adds and bandwidths by number of workers."""
    made = Table(title="The machine", title_justify="left")
    for name in ("workers", "barrier, ns", "GFLOP/s", "GB/s, L2", "GB/s, last level", "GB/s, memory"):
        made.add_column(name, justify="right")
    for count, rates in found.items():
        made.add_row(str(count), *(f"{each:.0f}" for each in rates))
    return made


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_cores", description="Steps by number of cores.")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--workers", type=int, nargs="*", help="1, 2, 4, ... up to all cores")
    parser.add_argument("--minutes", type=float, default=7.0, help="after which no process of Keras is started")
    parser.add_argument("--alone", metavar="WORKLOAD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    counts = sorted({1, *(options.workers or powers(usable_cores()))})
    if options.alone:
        print(json.dumps(alone(options.alone, counts)))
        return
    names = options.workloads or list(DEFAULT)
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"Expected workloads among {', '.join(WORKLOADS)}. Received: {unknown[0]!r}")
    console, end, rates = Console(width=110), time.monotonic() + 60 * options.minutes, dict[int, Any]()
    made = Table(title=f"Steps on up to {usable_cores()} cores, in milliseconds", title_justify="left")
    for name in ("workload", "workers", "ours", "x 1", "alone", "x 1", "predicted x 1", "Keras", "x 1", "times"):
        made.add_column(name, justify="left" if name == "workload" else "right")
    for name in names:
        with console.status(f"measuring {name}"):
            workload = replace(WORKLOADS[name], steps=2 * WORKLOADS[name].execution)
            apart = measured_apart(name, counts)
            ours, keras = beside_keras(workload, counts, end)
        rates = rates or apart["rates"]
        _add_rows(made, name, counts, apart, ours, keras)
    console.print(rates_table(rates))
    console.print(made)


def _add_rows(
    made: Table,
    name: str,
    counts: list[int],
    apart: dict[str, dict[int, Any]],
    ours: dict[int, float],
    keras: dict[int, float],
) -> None:
    """A workload's rows, one for each number of workers."""
    measured, predicted = apart["measured"], apart["predicted"]
    for count in counts:
        cells = [f"{ours[count]:.3f}", f"{ours[1] / ours[count]:.2f}"]
        cells += [f"{measured[count]:.3f}", f"{measured[1] / measured[count]:.2f}"]
        cells.append(f"{predicted[1] / predicted[count]:.2f}")
        if count in keras:
            faster = f"{keras[1] / keras[count]:.2f}" if 1 in keras else ""
            cells += [f"{keras[count]:.3f}", faster, f"{keras[count] / ours[count]:.2f}"]
        made.add_row(name if count == counts[0] else "", str(count), *cells, end_section=count == counts[-1])


if __name__ == "__main__":
    main()
