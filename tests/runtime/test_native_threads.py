"""Workers as threads outside of Python; machine code does the work of Python's threads."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.codelets.threads.thread_pool import ThreadPool
from engine.errors import InternalError
from engine.runtime import native_threads, segments, workers
from engine.runtime.choice import WINDOW_SECONDS, WorkerChoice
from engine.runtime.executor import State, compute_row, step_table
from engine.runtime.threads import usable_cores
from tests.interrupting import HANGS_SECONDS, acting_when, interrupted_when, threads_of_system, wait_for
from tests.runtime.programs import Machine, halve, words
from tests.runtime.test_executor import oracle_rotation, rotation_table
from tests.runtime.test_waiting import block
from tests.runtime.test_workers import counting_table

INLINE = pytest.mark.parametrize("inline", [False, True])
CREATE = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Asserts that no worker stays; threads of Python end somewhat later than Python says."""
    before = threads_of_system().keys()
    yield

    def strangers() -> set[str]:
        return threads_of_system().keys() - before - {str(thread.native_id) for thread in threading.enumerate()}

    assert wait_for(lambda: not strangers()), strangers()


class Looker:
    """Calls a function whenever the caller looks at its workers, and notes delays."""

    def __init__(self, look: Callable[[list[int]], None], seconds: float = 0.02) -> None:
        self._look, self._seconds = look, seconds
        self.delays: dict[int, float] = {}

    def first_look(self) -> float:
        return self._seconds

    def look(self, threads: list[int]) -> float:
        self._look(threads)
        return self._seconds

    def leaves(self, worker: int, delay: float) -> None:
        self.delays[worker] = delay


def run(machine: Machine, table: np.ndarray, steps: int, watch: Looker | None = None, **more: Any) -> int:
    workers.begin_call(steps, machine.state)
    return workers.run_segment(
        *(table, steps, 0, machine.workers, machine.scratch, machine.state),
        watch=watch,
        **more,
    )


@INLINE
@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_all_workers_take_part(count: int, inline: bool) -> None:
    first = np.arange(13, dtype=np.int64) * 1000
    expected = oracle_rotation(first.copy(), 2 * 300)
    table, _blocks = rotation_table(count, first, np.zeros_like(first))
    assert Machine(count).run(table, 300, inline) == 300
    np.testing.assert_array_equal(first, expected)


@pytest.mark.sample(1)
@INLINE
def test_many_calls_leave_neither_threads_nor_memory(inline: bool) -> None:
    machine, counters = Machine(2), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 2, pauses=1)

    def maps() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    for _ in range(100):
        machine.run(table, 1, inline)
    before, threads = maps(), threads_of_system().keys()
    for _ in range(500):
        machine.run(table, 1, inline)
    assert threads_of_system().keys() <= threads
    assert maps() < before + 200  # Python and the threads of the test runner take some themselves
    np.testing.assert_array_equal(counters, 600)


@INLINE
def test_threads_have_room_on_their_stack_and_a_state_of_floating_point_of_their_own(inline: bool) -> None:
    values, denormal = np.full(4, 2.0**-1022), np.array([2.0**-1022])
    parameters = words(values.ctypes.data)
    table = step_table([compute_row(halve.address, parameters.ctypes.data, [(0, 2), (2, 4)])], 2)
    Machine(2).run(table, 1, inline)
    np.testing.assert_array_equal(values, 0.0)
    halve(words(denormal.ctypes.data).ctypes.data, 0, 1, 0)
    assert denormal[0] == 2.0**-1023 > 0


def refusing(monkeypatch: pytest.MonkeyPatch, made: int, when: Callable[[], bool] = lambda: True) -> list[object]:
    """Makes the creation of threads fail after so many, when a condition holds."""
    common = native_threads.common_words()
    create, count, waited = CREATE(int(common[ThreadPool.CREATE])), 0, []

    @CREATE
    def refuse(handle: int, attributes: int, function: int, argument: int) -> int:
        nonlocal count
        count += 1
        if count > made:
            waited.append(wait_for(when))
            return errno.EAGAIN
        return int(create(handle, attributes, function, argument))

    changed = common.copy()
    changed[ThreadPool.CREATE] = ctypes.cast(refuse, ctypes.c_void_p).value
    monkeypatch.setattr(native_threads, "common_words", lambda: changed)
    return [create, refuse, waited]


@INLINE
@pytest.mark.parametrize("made", [0, 2])
def test_a_thread_that_cannot_start_frees_the_others(made: int, inline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, counters = Machine(4), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 4, pauses=1)
    with monkeypatch.context() as patch:
        _kept = refusing(patch, made)
        with pytest.raises(InternalError, match="can't start new thread"):
            machine.run(table, 100, inline)
    np.testing.assert_array_equal(counters, 0)
    assert machine.run(table, 100, inline) == 100
    np.testing.assert_array_equal(counters, 100)


@INLINE
def test_sleeping_workers_notice_that_one_will_never_come(inline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = block("sleep")
    monkeypatch.setattr(workers, "_waiting_block", lambda: changed)
    machine, counters = Machine(4), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 4, pauses=1)
    *_kept, waited = refusing(monkeypatch, 2, lambda: machine.state[State.ASLEEP] == 2)
    with pytest.raises(InternalError, match="can't start"):
        machine.run(table, 100, inline)
    assert waited == [True]
    assert machine.state[State.ASLEEP] == 0


def test_no_thread_stays_where_it_was_moved_to() -> None:
    count = usable_cores()
    machine, counters = Machine(count), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, count, pauses=10)
    seen: list[set[int]] = []

    def look(threads: list[int]) -> None:
        assert threading.get_native_id() not in threads
        if len(threads) == count and not seen:  # all threads have begun, and none has ended
            seen.extend(os.sched_getaffinity(thread) for thread in threads)
            workers.request_stop(machine.state)

    before = os.sched_getaffinity(0)
    run(machine, table, 10**12, Looker(look))
    assert seen == [before] * count
    assert os.sched_getaffinity(0) == before
    run(machine, table, 100, inline=True)
    assert os.sched_getaffinity(0) == before


@INLINE
def test_the_time_without_a_core_is_told(inline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system gives the time of threads that had to leave their core."""
    told = tmp_path / "schedstat"
    told.write_text("77 123456789 5\n")
    name = ctypes.create_string_buffer(str(told).encode())
    common = native_threads.common_words()
    changed = common.copy()
    changed[ThreadPool.ACCOUNTING] = ctypes.addressof(name)
    machine, counters = Machine(2), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 2, pauses=10_000)
    cores = os.sched_getaffinity(0)
    delays: dict[int, float] = {}

    def have_left_their_core() -> bool:
        numbers = [number for number, name in threads_of_system().items() if name.startswith("worker ")]
        statuses = [Path(f"/proc/self/task/{number}/status").read_text() for number in numbers]
        return bool(statuses) and not any("nonvoluntary_ctxt_switches:\t0\n" in status for status in statuses)

    try:
        os.sched_setaffinity(0, {min(cores)})  # both threads share a core
        for words_of_pools in (common, changed):
            monkeypatch.setattr(native_threads, "common_words", lambda words=words_of_pools: words)
            watch = Looker(lambda threads: None)
            began = time.perf_counter()
            with acting_when(have_left_their_core, lambda: workers.request_stop(machine.state)):
                run(machine, table, 10**12, watch, inline=inline)
            seconds, delays = time.perf_counter() - began, watch.delays
            assert sorted(delays) == [0, 1]
            if words_of_pools is common:
                assert 0 < sum(delays.values()) < 2 * seconds
    finally:
        os.sched_setaffinity(0, cores)
    if inline:  # for a thread that did not begin with the call, only what has been added counts
        assert delays[0] == 0
    assert {round(1e9 * delay) for delay in delays.values()} - {0} == {123456789}


@INLINE
def test_calls_from_a_thread_of_the_users(inline: bool) -> None:
    machine, counters, completed = Machine(2), np.zeros(4, np.int64), []
    table, _blocks = counting_table(counters, 2, pauses=1)
    caller = threading.Thread(target=lambda: completed.append(machine.run(table, 50, inline)))
    caller.start()
    caller.join()
    assert completed == [50]


def test_signals_are_handled_while_the_caller_waits() -> None:
    machine, counters = Machine(2), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 2, pauses=100)
    before = signal.signal(signal.SIGUSR1, lambda *_: workers.request_stop(machine.state))
    try:
        with acting_when(machine.has_completed_steps, lambda: os.kill(os.getpid(), signal.SIGUSR1)):
            completed = machine.run(table, 10**12)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert 0 < completed < 10**12
    np.testing.assert_array_equal(counters, completed)


@pytest.mark.parametrize("count", [1, 2])
def test_a_segment_ends_at_its_deadline_after_a_whole_step(count: int) -> None:
    machine, counters = Machine(count), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, count, pauses=10)
    watch = Looker(lambda threads: None)
    assert run(machine, table, 50, watch, inline=True, deadline=1) == 1  # long ago
    assert machine.state[State.CHANGE] == 1
    soon = time.monotonic_ns() + 20_000_000
    more = (table, 10**9, 1, count, machine.scratch, machine.state)
    workers.begin_call(10**9, machine.state)
    machine.state[State.CHANGE] = 1
    completed = workers.run_segment(*more, inline=True, watch=watch, deadline=soon)
    assert time.monotonic_ns() >= soon
    assert 1 < completed < 10**9
    np.testing.assert_array_equal(counters, completed)


@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_what_was_thought_to_be_brief_can_be_interrupted_too(count: int, is_given: bool) -> None:
    machine, counters = Machine(count), np.zeros(4, np.int64)
    made = {each: counting_table(counters, each, pauses=100) for each in range(1, count + 1)}
    tables = {each: table for each, (table, _) in made.items()}
    choice = WorkerChoice(lambda: math.inf)
    choice.step_seconds = 0.0
    workers.begin_call(10**12, machine.state)

    def first_segment_has_ended() -> bool:
        return choice.step_seconds > 0.0 and workers.completed_steps(machine.state) > 1

    with interrupted_when(first_segment_has_ended, lambda: os.kill(os.getpid(), signal.SIGINT)):
        segments.run_in_segments(
            *(choice, count, 10**12, tables.__getitem__, lambda workers: machine.scratch[:workers], machine.state),
            is_given=is_given,
            may_be_inline=True,
        )
    assert choice.step_seconds > 0.0
    assert workers.completed_steps(machine.state) > 1
    np.testing.assert_array_equal(counters, workers.completed_steps(machine.state))


def test_a_trial_on_the_calling_thread_ends_with_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, counters = Machine(2), np.zeros(4, np.int64)
    made = {count: counting_table(counters, count, pauses=100) for count in (1, 2)}
    tables = {count: table for count, (table, _) in made.items()}
    run_segment, seconds = workers.run_segment, list[float]()

    def spy(*arguments: Any, deadline: int, **more: Any) -> int:
        seconds.append(1e-9 * (deadline - time.monotonic_ns()))
        return run_segment(*arguments, deadline=deadline, **more)

    monkeypatch.setattr(segments, "run_segment", spy)
    choice = WorkerChoice(lambda: math.inf)
    choice.workers(2, time.perf_counter())
    choice._fewer, choice._is_apart, choice.step_seconds = 1, True, 1e-6
    workers.begin_call(5, machine.state)
    segments.run_in_segments(
        *(choice, 2, 5, tables.__getitem__, lambda count: machine.scratch[:count], machine.state), may_be_inline=True
    )
    assert seconds[0] < WINDOW_SECONDS < segments.BRIEF_SECONDS
    assert workers.completed_steps(machine.state) == 5


def test_brief_calls_are_made_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, counters = Machine(2), np.zeros(4, np.int64)
    table, _blocks = counting_table(counters, 2, pauses=1)
    run_segment, found = workers.run_segment, []

    def spy(*arguments: Any, **more: Any) -> int:
        found.append(arguments[6])
        return run_segment(*arguments, **more)

    monkeypatch.setattr(segments, "run_segment", spy)
    choice = WorkerChoice(lambda: math.inf)

    def is_inline(may_be_inline: bool = True) -> bool:
        """Whether the caller begins a call of five steps. If it takes long, other threads go on with it."""
        found.clear()
        workers.begin_call(5, machine.state)
        more = (machine.state, True, may_be_inline)
        segments.run_in_segments(choice, 2, 5, lambda workers: table, lambda workers: machine.scratch, *more)
        assert workers.completed_steps(machine.state) == 5
        return bool(found[0])

    assert not is_inline()  # no time of a step is known
    assert 0.0 < choice.step_seconds < math.inf
    choice.step_seconds = 0.009
    assert is_inline()
    choice.step_seconds = 0.009
    assert not is_inline(may_be_inline=False)
    choice.step_seconds = 0.011
    assert not is_inline()
    choice.step_seconds, choice._fewer = 0.001, 1  # others use the cores
    assert not is_inline()


@INLINE
def test_a_crash_ends_the_process_at_once(inline: bool) -> None:
    program = f"""
import numpy as np
from engine.runtime.executor import compute_row, step_table
from tests.runtime.programs import Machine, count, words
block = words(1)  # an address of nothing
table = step_table([compute_row(count.address, block.ctypes.data, [(0, 0), (0, 1)])], 2)
Machine(2).run(table, 10, inline={inline})
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=HANGS_SECONDS).returncode == -signal.SIGSEGV


@INLINE
def test_a_forked_child_computes_too(inline: bool) -> None:
    program = f"""
import os
import numpy as np
from tests.interrupting import threads_of_system
from tests.runtime.test_workers import counting_table
from tests.runtime.programs import Machine
machine, counters = Machine(2), np.zeros(4, np.int64)
table, blocks = counting_table(counters, 2, 1)
for _ in range(20):
    machine.run(table, 10, {inline})
child = os.fork()
if child == 0:
    threads = len(threads_of_system())  # 1, and QEMU's own where the process is emulated
    machine.run(table, 5, {inline})
    os._exit(0 if counters.tolist() == [205] * 4 and len(threads_of_system()) == threads else 1)
_, status = os.waitpid(child, 0)
assert status == 0 and counters.tolist() == [200] * 4
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=HANGS_SECONDS)
