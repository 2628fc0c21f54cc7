"""The distance of the cores, as the time of an empty barrier of all workers.

The host of a virtual machine may move its cores. A cache line then takes up to four times as long from one core to
another, and small steps of several workers take up to twice as long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.runtime.executor import RowKind, control_row, new_scratch, new_state, step_table
from engine.runtime.threads import worker_count
from engine.runtime.workers import run_table

BARRIERS, STEPS = 100, 200
CALLS = 8
APART = 1.5
"""Ratio of two times above which the cores count as moved."""


def barrier_nanoseconds(workers: int | None = None) -> float:
    """The nanoseconds of an empty barrier, 0 for one worker: the least of some calls, as other load only adds."""
    workers = workers or worker_count()
    if workers == 1:
        return 0.0
    table = step_table([control_row(RowKind.SYNC, workers)] * BARRIERS, workers)
    scratch, state, taken = new_scratch(workers, 0), new_state(workers), []
    for _ in range(CALLS):
        start = time.perf_counter()
        run_table(table, STEPS, workers, scratch, state)
        taken.append(time.perf_counter() - start)
    return 1e9 * min(taken) / (BARRIERS * STEPS)


def have_moved(barriers: Sequence[float]) -> bool:
    """Whether times of empty barriers differ so much that you should not compare the races between them."""
    return max(barriers, default=0.0) >= APART * min(barriers, default=0.0) > 0.0


def description(barriers: Sequence[float], kept: Sequence[float] = ()) -> str:
    """A line on the empty barriers before and after a race, with a warning if some are longer than others or `kept`."""
    line = "empty barriers before and after: " + ", ".join(f"{each:.0f} ns" for each in barriers)
    if have_moved(barriers):
        return f"{line}. Warning: the cores were moved meanwhile, race again"
    if have_moved([*barriers, min([*kept, *barriers], default=0.0)]):
        return f"{line}. Warning: {min(kept):.0f} ns were kept, the cores are further apart now, race again"
    return line
