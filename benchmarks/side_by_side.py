"""Compare two ways to run a pipeline on the host: IPUs side by side, and all workers on one part after the other.

python -m benchmarks.side_by_side [--rounds N]

The step table of a grouped pipeline runs as it is, and with each part on one worker: workers have different IPUs, and
synchronise only between slots. The results of the second way are invalid, because buffers of parts that run at once may
overlap. A busy machine delays workers at barriers, so the time of each way is also summed from the least times of all
compute sets.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.hot_spots import microseconds_of, observed_programs
from benchmarks.pipeline import SIZES, STAGES, STEPS, data, perceptron
from engine.partition.schedule import Part, Schedule, devices_of, make_schedule
from engine.runtime.executor import Column, RowKind
from engine.runtime.threads import usable_cores
from engine.runtime.workers import run_table
from ipu.pipelining_ops import PipelineSchedule

UPDATES_OF_A_CALL = 8


def parts_of_a_round(schedule: Schedule) -> list[Part]:
    """The schedule's parts in program order."""
    return sorted(schedule.parts, key=lambda part: (part.start % schedule.period, -schedule.position(part)))


def side_by_side(table: np.ndarray, schedule: Schedule, workers: int) -> np.ndarray:
    """The table with each part on the worker of its IPU, and barriers only between slots."""
    made = table.copy()
    begins = np.flatnonzero(made[:, Column.KIND] == RowKind.TURN)
    slot = None
    for begin, part in zip(begins, parts_of_a_round(schedule), strict=True):
        worker = part.stage * workers // schedule.stages
        rows = made[begin + 1 : made[begin, Column.TARGET]]
        syncs = rows[:, Column.KIND] == RowKind.SYNC
        units = rows[:, Column.RANGES + 1 :: 2].max(axis=1)
        rows[:, Column.RANGES :] = 0
        rows[:, Column.RANGES + 2 * worker + 1] = units
        # A removed barrier becomes a compute set without units.
        rows[syncs, Column.KIND] = RowKind.COMPUTE
        if part.start % schedule.period != slot and syncs[0]:
            rows[0, Column.KIND] = RowKind.SYNC
        slot = part.start % schedule.period
    return made


def least_times(executable: Any, table: np.ndarray, workers: int) -> np.ndarray:
    """Microseconds of each row for each worker in an update, [rows, workers], timed one after the other."""
    scratch, _ = executable._workspace_for(workers)
    found = np.zeros((len(table), workers))
    for worker in range(workers):
        alone = table.copy()
        alone[:, Column.RANGES : Column.RANGES + 2] = table[
            :, Column.RANGES + 2 * worker : Column.RANGES + 2 * worker + 2
        ]
        _, found[:, worker], _ = microseconds_of(alone, scratch)
    return found


def added_up(table: np.ndarray, times: np.ndarray) -> float:
    """Microseconds of an update with the table as it is: the sum of the slowest worker's times between barriers."""
    steered = table[:, Column.KIND] != RowKind.COMPUTE
    between = np.cumsum(steered)
    return float(sum(times[between == each].sum(axis=0).max() for each in range(between[-1] + 1)))


def added_up_side_by_side(table: np.ndarray, times: np.ndarray, schedule: Schedule, workers: int) -> float:
    """Microseconds of an update with the IPUs distributed: the sum of the slowest worker's times in each slot."""
    begins = np.flatnonzero(table[:, Column.KIND] == RowKind.TURN)
    outside = np.ones(len(table), bool)
    takes: dict[tuple[str, int], float] = {}
    for begin, part in zip(begins, parts_of_a_round(schedule), strict=True):
        rows = slice(begin + 1, table[begin, Column.TARGET])
        takes[part.kind, part.stage] = float(times[rows].sum()) / schedule.micro_batches
        outside[rows] = False
    slots = np.zeros((schedule.slots, workers))
    for row in schedule.rows:
        slots[row.slot, row.stage * workers // schedule.stages] += takes.get((row.kind, row.stage), 0.0)
    return float(slots.max(axis=1).sum() + times[outside].max(axis=1).sum())


def race(width: int, batch: int, rounds: int, workers: int) -> list[float]:
    """Microseconds of an update with one part after the other and IPUs side by side: the least, then the sums."""
    programs = observed_programs()
    model = perceptron(width, PipelineSchedule.Grouped)
    x, y = data(width, batch)
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    executable: Any = max(programs, key=lambda each: len(each.program.compute_sets))
    schedule = make_schedule("Grouped", devices_of(STAGES, None), STEPS, training=True)
    as_it_is = executable._table(False, workers).copy()
    as_it_is[: len(executable._infeeds), Column.RANGES :] = 0  # the feeds of the last call are freed
    times = least_times(executable, as_it_is, workers)
    least = [float("inf")] * 2
    scratch, state = executable._workspace_for(workers)
    for _ in range(rounds):
        for number, table in enumerate((as_it_is, side_by_side(as_it_is, schedule, workers))):
            start = time.perf_counter()
            run_table(table, UPDATES_OF_A_CALL, workers, scratch, state)
            least[number] = min(least[number], 1e6 * (time.perf_counter() - start) / UPDATES_OF_A_CALL)
    return [*least, added_up(as_it_is, times), added_up_side_by_side(as_it_is, times, schedule, workers)]


def main() -> None:
    """Read the command line, race, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description="Races pipelines.")
    parser.add_argument("--rounds", type=int, default=20)
    rounds, workers = parser.parse_args().rounds, min(usable_cores(), STAGES)
    columns = (
        "width x batch",
        "us, on a part",
        "us, side by side",
        "share",
        "added up: on a part",
        "side by side",
        "share",
    )
    table = Table(*columns, title=f"One update of {STEPS} micro-batches, {workers} workers")
    for width, batch in SIZES:
        ran, ran_apart, sums, sums_apart = race(width, batch, rounds, workers)
        cells = (f"{ran:.0f}", f"{ran_apart:.0f}", f"{ran / ran_apart:.2f}")
        table.add_row(f"{width} x {batch}", *cells, f"{sums:.0f}", f"{sums_apart:.0f}", f"{sums / sums_apart:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
