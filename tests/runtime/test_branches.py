"""Branch and jump rows: where they lead, for any number of workers, and out of loops that never end."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from engine.codelets.language.build import codelet
from engine.codelets.language.memory import load_i64, store_i64
from engine.errors import InternalError
from engine.runtime import native_threads
from engine.runtime.executor import RowKind, State, Stop, compute_row, control_row, step_table
from engine.runtime.workers import completed_steps
from tests.exploring import sample
from tests.interrupting import interrupted_when, living_workers, wait_for
from tests.runtime.programs import Journal, Machine, count, log_call, words
from tests.runtime.ranges import even_ranges

WORKERS = [1, 2, 4]


@codelet
def is_below(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Stores counter < limit in a word. Parameters: address of the word, address of the counter, limit."""
    less = load_i64(load_i64(parameters + 8)) < load_i64(parameters + 16)
    store_i64(load_i64(parameters), 1 if less else 0)


@codelet
def ask(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Stores a value in a word. Parameters: address of the word, the value."""
    store_i64(load_i64(parameters), load_i64(parameters + 8))


class Steering:
    """A predicate, and rows for tables of one number of workers; keeps the arrays that the rows point to."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.predicate = np.zeros(1, np.int64)
        self.journal = Journal()
        self.kept: list[np.ndarray] = []

    def log(self, tag: int) -> list[int]:
        """A row in which worker 0 notes that it passes."""
        self.kept.append(self.journal.parameters(tag))
        return compute_row(log_call.address, self.kept[-1].ctypes.data, self._first())

    def compare(self, counter: np.ndarray, limit: int) -> list[int]:
        """A row in which worker 0 sets the predicate to counter[0] < limit."""
        self.kept.append(words(self.predicate.ctypes.data, counter.ctypes.data, limit))
        return compute_row(is_below.address, self.kept[-1].ctypes.data, self._first())

    def count(self, counters: np.ndarray) -> list[int]:
        self.kept.append(words(counters.ctypes.data))
        return compute_row(count.address, self.kept[-1].ctypes.data, even_ranges(len(counters), self.workers))

    def branch(self, target: int, when: bool) -> list[int]:
        return control_row(RowKind.BRANCH, self.workers, target, self.predicate.ctypes.data, when)

    def sync(self) -> list[int]:
        return control_row(RowKind.SYNC, self.workers)

    def table(self, *rows: list[int]) -> np.ndarray:
        return step_table(rows, self.workers)

    def tags(self) -> list[int]:
        return [entry[0] for entry in self.journal.entries()]

    def _first(self) -> list[tuple[int, int]]:
        return [(0, 1)] + [(1, 1)] * (self.workers - 1)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("value", [0, 1, 0x80])
@pytest.mark.parametrize("when", [False, True])
def test_branch_is_taken_if_the_predicate_is_what_it_asks_for(workers: int, value: int, when: bool) -> None:
    s = Steering(workers)
    s.predicate[0] = value
    assert Machine(workers).run(s.table(s.log(0), s.branch(3, when), s.log(1), s.log(2)), 2) == 2
    assert s.tags() == ([0, 2] if bool(value) == when else [0, 1, 2]) * 2


@pytest.mark.parametrize("value", [0x100, 0xFF00])
def test_a_predicate_is_one_byte(value: int) -> None:
    s = Steering(1)
    s.predicate[0] = value
    Machine(1).run(s.table(s.branch(2, True), s.log(1), s.log(2)), 1)
    assert s.tags() == [1, 2]


@pytest.mark.parametrize("workers", WORKERS)
def test_jump_forward_and_to_the_end(workers: int) -> None:
    s = Steering(workers)
    table = s.table(
        control_row(RowKind.JUMP, workers, 2), s.log(1), s.log(2), control_row(RowKind.JUMP, workers, 5), s.log(3)
    )
    assert Machine(workers).run(table, 3) == 3
    assert s.tags() == [2, 2, 2]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("limit", [0, 1, 57])
def test_loop_runs_while_its_condition_holds(workers: int, limit: int) -> None:
    """All workers count each iteration; a later step continues from the counter that the first one left."""
    s, counters = Steering(workers), np.zeros(8, np.int64)
    table = s.table(
        *(s.compare(counters, limit), s.sync(), s.branch(6, False)),
        *(s.count(counters), s.sync(), control_row(RowKind.JUMP, workers, 0)),
    )
    assert Machine(workers).run(table, 2) == 2
    np.testing.assert_array_equal(counters, limit)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(("outer", "inner"), [(1, 1), (3, 1), (1, 5), (3, 5)])
def test_each_worker_counts_its_iterations(workers: int, outer: int, inner: int) -> None:
    """A loop in a loop, run twice a step without a sync; counters begin at 0 each time."""
    s, counters, others = Steering(workers), np.zeros(8, np.int64), np.zeros(8, np.int64)
    table = s.table(
        *(
            s.count(counters),
            control_row(RowKind.REPEAT, workers, 0, inner, counter=1),
            s.count(others),
            control_row(RowKind.REPEAT, workers, 0, outer, counter=0),
        ),
        *(s.count(counters), control_row(RowKind.REPEAT, workers, 4, inner, counter=0)),
    )
    assert Machine(workers).run(table, 2) == 2
    np.testing.assert_array_equal(counters, 2 * (outer * inner + inner))
    np.testing.assert_array_equal(others, 2 * outer)


@pytest.mark.parametrize("workers", WORKERS)
def test_loop_in_a_loop(workers: int) -> None:
    """The inner loop runs until its counter is 5, the outer loop, which resets nothing, until its counter is 3.

    A sync keeps worker 0 from comparing again while other workers still test the predicate of the outer loop.
    """
    s, inner, outer = Steering(workers), np.zeros(4, np.int64), np.zeros(4, np.int64)
    table = s.table(
        *(s.compare(outer, 3), s.sync(), s.branch(13, False), s.count(outer), s.sync()),
        *(
            s.compare(inner, 5),
            s.sync(),
            s.branch(11, False),
            s.count(inner),
            s.sync(),
            control_row(RowKind.JUMP, workers, 5),
        ),
        *(s.sync(), control_row(RowKind.JUMP, workers, 0)),
    )
    assert Machine(workers).run(table, 1) == 1
    assert (inner.tolist(), outer.tolist()) == ([5] * 4, [3] * 4)


@pytest.mark.parametrize("target", [-1, 3])
def test_targets_outside_the_table_are_refused(target: int) -> None:
    for row in (
        control_row(RowKind.JUMP, 1, target),
        control_row(RowKind.BRANCH, 1, target, 8, True),
        control_row(RowKind.REPEAT, 1, target, 2, counter=0),
    ):
        with pytest.raises(InternalError, match="target"):
            step_table([row, control_row(RowKind.SYNC, 1)], 1)


def endless(s: Steering, counters: np.ndarray, after: np.ndarray, leaves: bool = True) -> np.ndarray:
    s.predicate[0] = 1
    return s.table(
        *(s.sync(), s.branch(5, False)),
        *(s.count(counters), s.sync(), control_row(RowKind.JUMP, s.workers, 0, when=leaves)),
        s.count(after),
    )


def send_signal() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("interrupt", [send_signal, _thread.interrupt_main])
@pytest.mark.parametrize("workers", WORKERS)
def test_a_loop_without_end_is_left_between_two_iterations(workers: int, interrupt: Callable[[], None]) -> None:
    s, machine = Steering(workers), Machine(workers)
    counters, after = np.zeros(8, np.int64), np.zeros(8, np.int64)
    with interrupted_when(lambda: counters.min() > 0, interrupt):
        machine.run(endless(s, counters, after), 10)
    assert completed_steps(machine.state) == 0
    assert counters.min() == counters.max() > 0
    assert not after.any()
    assert not living_workers()
    assert machine.run(s.table(s.count(after)), 3) == 3
    np.testing.assert_array_equal(after, 3)


@pytest.mark.parametrize("workers", WORKERS)
def test_all_workers_leave_at_the_same_jump_whenever_they_are_asked(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_threads, "PATIENCE_SECONDS", 0.0)
    s, machine = Steering(workers), Machine(workers)
    counters, after = np.zeros(8, np.int64), np.zeros(8, np.int64)
    for delay in sample(np.linspace(0, 0.003, 30), 5):
        counters[:] = 0
        timer = threading.Timer(delay, _thread.interrupt_main)
        try:
            timer.start()
            machine.run(endless(s, counters, after), 10)
        except KeyboardInterrupt:
            assert counters.min() == counters.max()
        finally:
            timer.join()
    assert not after.any()
    assert not living_workers()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_patient_request_lets_the_step_end(workers: int) -> None:
    """A request to stop after the step still completes a step with a loop."""
    s, machine, counters = Steering(workers), Machine(workers), np.zeros(8, np.int64)
    asking = words(machine.state[State.STOP :].ctypes.data, Stop.AFTER_STEP)
    table = s.table(
        compute_row(ask.address, asking.ctypes.data, [(0, 1)] + [(1, 1)] * (workers - 1)),
        *(s.compare(counters, 50), s.sync(), s.branch(7, False)),
        *(s.count(counters), s.sync(), control_row(RowKind.JUMP, workers, 1, when=True)),
    )
    assert machine.run(table, 10) == 1
    np.testing.assert_array_equal(counters, 50)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_short_loop_is_never_left(workers: int) -> None:
    """The loop's jump forbids leaving it: even an impatient request waits for the end of the step."""
    s, machine, counters = Steering(workers), Machine(workers), np.zeros(8, np.int64)
    resets = np.zeros(8, np.int64)
    asking = words(machine.state[State.STOP :].ctypes.data, Stop.INSIDE_STEP)
    table = s.table(
        compute_row(ask.address, asking.ctypes.data, [(0, 1)] + [(1, 1)] * (workers - 1)),
        *(s.compare(counters, 50), s.sync(), s.branch(7, False)),
        *(s.count(counters), s.sync(), control_row(RowKind.JUMP, workers, 1)),
        s.count(resets),
    )
    assert machine.run(table, 10) == 1
    np.testing.assert_array_equal(counters, 50)
    np.testing.assert_array_equal(resets, 1)


def test_two_interruptions_wait_for_the_workers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers may continue as long as they like after the first interruption, but must leave after the second."""
    monkeypatch.setattr(native_threads, "PATIENCE_SECONDS", 1e9)
    s, machine = Steering(2), Machine(2)
    counters, after = np.zeros(8, np.int64), np.zeros(8, np.int64)

    def interrupt_twice() -> None:
        _thread.interrupt_main()
        wait_for(lambda: machine.state[State.STOP] == Stop.AFTER_STEP)  # the first interruption has arrived
        _thread.interrupt_main()

    with interrupted_when(lambda: counters.min() > 0, interrupt_twice):
        machine.run(endless(s, counters, after), 10)
    assert not living_workers()
    assert counters.min() == counters.max() > 0
