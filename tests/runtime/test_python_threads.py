"""Workers as threads of Python's: failures, and a core for each."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from engine.errors import InternalError
from engine.runtime import python_threads, threads, workers
from engine.runtime.executor import State
from tests.interrupting import PATIENCE_SECONDS, living_workers, wait_for
from tests.runtime.programs import Machine
from tests.runtime.test_waiting import block
from tests.runtime.test_workers import counting_table


@pytest.fixture(autouse=True)
def threads_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes workers threads of Python, as on systems without futex."""
    monkeypatch.setattr(workers, "has_native_threads", lambda: False)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_worker_frees_the_others(failing: int) -> None:
    aborted = threading.Event()

    def work(worker: int) -> None:
        if worker == failing:
            raise ZeroDivisionError("inside")
        assert aborted.wait(PATIENCE_SECONDS)

    with pytest.raises(InternalError, match="inside"):
        threads.attend(python_threads.PythonThreadPool(work, 2, aborted.set, None), lambda impatient: None, None)
    assert not living_workers()


def test_workers_waiting_for_a_thread_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, counters = Machine(4), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 4, pauses=1)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "worker 3":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(InternalError, match="can't start"):
        machine.run(table, 100)
    assert not living_workers()
    np.testing.assert_array_equal(counters, 0)


def test_sleeping_workers_notice_that_one_will_never_come(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = block("sleep")
    monkeypatch.setattr(workers, "_waiting_block", lambda: changed)
    machine, counters, waited = Machine(3), np.zeros(4, np.int64), []
    table, _blocks = counting_table(counters, 3, pauses=1)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "worker 2":
            waited.append(wait_for(lambda: machine.state[State.ASLEEP] == 1))  # worker 0 starts the others
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(InternalError, match="can't start"):
        machine.run(table, 100)
    assert not living_workers()
    assert waited == [True]
    assert machine.state[State.ASLEEP] == 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads have no cores here")
def test_spreading_pins_no_thread() -> None:
    before = os.sched_getaffinity(0)
    seen: list[set[int]] = []

    def work(worker: int) -> None:
        seen.append(os.sched_getaffinity(0))

    count = len(before)
    threads.attend(python_threads.PythonThreadPool(work, count, lambda: None, None), lambda impatient: None, None)
    assert seen == [before] * count
    assert os.sched_getaffinity(0) == before
    assert list(threads.cores_to_spread(count)) == (sorted(before) if count > 1 else [])
    assert not threads.cores_to_spread(count + 1)
