"""The step table: order, chains, `when`, syncs and stops are the same for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import InternalError
from engine.runtime.executor import GROUP, RowKind, State, compute_row, control_row, new_scratch, step_table
from engine.runtime.workers import completed_steps
from tests.runtime.programs import Journal, Machine, count, dawdle, halve, log_call, rotate, stop_at, words
from tests.runtime.ranges import even_ranges

WORKERS = [1, 2, 4]
GROUPS = [GROUP, GROUP + 1, 2 * GROUP, 2 * GROUP + 1, 32]
"""Numbers of workers around those that wait in groups."""


def oracle_rotation(values: np.ndarray, rounds: int) -> np.ndarray:
    for _ in range(rounds):
        values = np.roll(values, -1) + 1
    return values


def rotation_table(workers: int, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Two rotations a step, first -> second -> first, with one sync between them."""
    n = len(first)
    blocks = [
        words(second.ctypes.data, first.ctypes.data, n),
        words(first.ctypes.data, second.ctypes.data, n),
    ]
    there, back = (compute_row(rotate.address, b.ctypes.data, even_ranges(n, workers)) for b in blocks)
    return step_table([there, control_row(RowKind.SYNC, workers), back], workers), blocks


@pytest.mark.parametrize("workers", [*WORKERS, *GROUPS])
def test_barriers_order_all_memory(workers: int) -> None:
    steps = {1: 50_000, 2: 20_000, 4: 2_000}.get(workers, 100)
    first = np.arange(max(13, workers + 5), dtype=np.int64) * 1000
    expected = oracle_rotation(first.copy(), 2 * steps)
    table, _blocks = rotation_table(workers, first, np.zeros_like(first))
    assert Machine(workers).run(table, steps) == steps
    np.testing.assert_array_equal(first, expected)


@pytest.mark.parametrize("workers", WORKERS)
def test_every_unit_runs_once_a_step(workers: int) -> None:
    counters = np.zeros(7, np.int64)
    block = words(counters.ctypes.data)
    table = step_table([compute_row(count.address, block.ctypes.data, even_ranges(7, workers))], workers)
    assert Machine(workers).run(table, 1000) == 1000
    np.testing.assert_array_equal(counters, 1000)


def test_empty_ranges_are_skipped() -> None:
    journal = Journal()
    block = journal.parameters(1)
    table = step_table([compute_row(log_call.address, block.ctypes.data, [(0, 0), (3, 3)])], 2)
    assert Machine(2).run(table, 5) == 5
    assert journal.entries() == []


@pytest.mark.parametrize("workers", [*WORKERS, GROUP + 1, 32])
@pytest.mark.parametrize("step", [0, 1, 37])
def test_stop_ends_all_workers_at_the_same_boundary(workers: int, step: int) -> None:
    machine = Machine(workers)
    counters = np.zeros(8, np.int64)
    counting, stopping = words(counters.ctypes.data), words(machine.state[State.STOP :].ctypes.data, step)
    rows = [
        compute_row(stop_at.address, stopping.ctypes.data, [(0, 1)] + [(0, 0)] * (workers - 1)),
        compute_row(count.address, counting.ctypes.data, even_ranges(8, workers)),
    ]
    completed = machine.run(step_table(rows, workers), 1000)
    assert completed == step + 1 == completed_steps(machine.state)
    np.testing.assert_array_equal(counters, completed)


def test_stop_by_a_slow_last_worker() -> None:
    machine = Machine(2)
    counters = np.zeros(2, np.int64)
    counting, stopping = words(counters.ctypes.data), words(machine.state[State.STOP :].ctypes.data, 5)
    slow = words(20_000)
    rows = [
        compute_row(dawdle.address, slow.ctypes.data, [(0, 0), (0, 1)]),
        compute_row(stop_at.address, stopping.ctypes.data, [(0, 0), (0, 1)]),
        compute_row(count.address, counting.ctypes.data, [(0, 1), (1, 2)]),
    ]
    completed = machine.run(step_table(rows, 2), 1000)
    assert completed in (6, 7)  # worker 0 may already have passed the question at the boundary
    np.testing.assert_array_equal(counters, completed)


@pytest.mark.parametrize("workers", WORKERS)
def test_denormals_count_as_zero_and_only_there(workers: int) -> None:
    values = np.full(4, 2.0**-1022)
    block = words(values.ctypes.data)
    table = step_table([compute_row(halve.address, block.ctypes.data, even_ranges(4, workers))], workers)
    Machine(workers).run(table, 1, inline=workers == 1)
    np.testing.assert_array_equal(values, 0.0)
    halve(block.ctypes.data, 0, 4, 0)
    denormal = np.array([2.0**-1022])
    halve(words(denormal.ctypes.data).ctypes.data, 0, 1, 0)
    assert denormal[0] == 2.0**-1023 > 0


@pytest.mark.parametrize(
    "rows",
    [
        [[RowKind.COMPUTE, 1, 1, 0, 0, 0]],
        [[9, 1, 1, 0, 0, 0, 0, 1]],
        [compute_row(0, 1, [(0, 1)])],
    ],
)
def test_impossible_tables_are_refused(rows: list[list[int]]) -> None:
    with pytest.raises(InternalError, match="Expected"):
        step_table(rows, 1)


def test_scratch_areas_are_apart_and_aligned() -> None:
    scratch = new_scratch(3, 100)
    assert scratch.shape[1] >= 164
    assert scratch.ctypes.data % 64 == 0 == scratch.strides[0] % 64
