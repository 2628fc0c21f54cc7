"""Threads around the executor: Ctrl-C, failures, forks, no thread left behind."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from engine.errors import ConfigurationError, InternalError
from engine.runtime import threads
from engine.runtime.executor import RowKind, compute_row, control_row, new_scratch, step_table
from engine.runtime.workers import completed_steps, request_stop, run_table
from tests.exploring import sample
from tests.interrupting import HANGS_SECONDS, acting_when, interrupted_when, living_workers
from tests.runtime.programs import Machine, count, dawdle, words
from tests.runtime.ranges import even_ranges


def counting_table(counters: np.ndarray, workers: int, pauses: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """A table whose steps wait a little and count."""
    blocks = [words(pauses), words(counters.ctypes.data)]
    everyone = [(0, 1)] * workers
    rows = [
        compute_row(dawdle.address, blocks[0].ctypes.data, everyone),
        control_row(RowKind.SYNC, workers),
        compute_row(count.address, blocks[1].ctypes.data, even_ranges(len(counters), workers)),
    ]
    return step_table(rows, workers), blocks


def send_signal() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("interrupt", [send_signal, _thread.interrupt_main])
@pytest.mark.parametrize("workers", [1, 2])
def test_interrupt_stops_at_a_step_boundary(workers: int, interrupt: Callable[[], None]) -> None:
    machine, counters = Machine(workers), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, workers, pauses=1000)
    with interrupted_when(machine.has_completed_steps, interrupt):
        machine.run(table, 10**12)
    completed = completed_steps(machine.state)
    assert completed > 0
    np.testing.assert_array_equal(counters, completed)
    assert not living_workers()
    assert machine.run(table, 3) == 3


def test_interrupts_at_any_moment_leave_whole_steps() -> None:
    machine, counters = Machine(2), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 2, pauses=10)
    for delay in sample(np.linspace(0, 0.004, 30), 10):
        counters[:] = 0
        timer = threading.Timer(delay, _thread.interrupt_main)
        try:
            timer.start()
            machine.run(table, 10**12)
        except KeyboardInterrupt:
            assert len(set(counters.tolist())) == 1
        finally:
            timer.join()
    assert not living_workers()


def test_stop_from_another_thread() -> None:
    machine, counters = Machine(2), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 2, pauses=100)
    with acting_when(machine.has_completed_steps, lambda: request_stop(machine.state)):
        completed = machine.run(table, 10**12)
    assert 0 < completed < 10**12
    np.testing.assert_array_equal(counters, completed)


def test_calls_from_other_threads_side_by_side() -> None:
    results = [np.zeros(4, np.int64) for _ in range(3)]

    def call(counters: np.ndarray) -> None:
        table, _blocks = counting_table(counters, 2, pauses=1)
        Machine(2).run(table, 500)

    callers = [threading.Thread(target=call, args=(counters,)) for counters in results]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    np.testing.assert_array_equal(results, 500)


def test_wrong_shapes_are_refused() -> None:
    machine, counters = Machine(2), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 2, pauses=1)
    with pytest.raises(InternalError, match="scratch"):
        run_table(table, 1, 2, new_scratch(1, 64), machine.state)
    with pytest.raises(InternalError, match="columns"):
        run_table(table, 1, 1, machine.scratch[:1], machine.state)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes_too() -> None:
    program = """
import os
import numpy as np

from tests.runtime.test_workers import counting_table
from tests.runtime.programs import Machine
machine, counters = Machine(2), np.zeros(4, np.int64)
table, blocks = counting_table(counters, 2, 1)
machine.run(table, 10)
child = os.fork()
if child == 0:
    machine.run(table, 5)
    os._exit(0 if counters.tolist() == [15] * 4 else 1)
_, status = os.waitpid(child, 0)
assert status == 0 and counters.tolist() == [10] * 4
machine.run(table, 5)
assert counters.tolist() == [15] * 4
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANGS_SECONDS)


def test_worker_count_reads_the_environment_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert threads.worker_count() == threads.usable_cores() >= 1
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert threads.worker_count() == 3
    monkeypatch.setattr(threads, "most_workers", lambda: 2)
    assert threads.worker_count() == 2
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", wrong)
        with pytest.raises(ConfigurationError, match="Nearest legal value"):
            threads.worker_count()
