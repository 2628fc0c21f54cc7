"""Single calls of several workers, whose threads stay between calls: bits, threads, forks, measured calls."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from engine.compile import compile_module
from engine.errors import InternalError
from engine.runtime import executable as executables
from engine.runtime import persistent_threads as persistent_threads
from engine.runtime.brief_call import BriefCall, SharedCall
from engine.runtime.choice import WINDOW_SECONDS, WorkerChoice
from engine.runtime.executable import Executable
from engine.runtime.executor import new_scratch, new_state
from engine.runtime.feeds import RowFeed
from engine.runtime.persistent_threads import end_persistent_threads
from engine.runtime.threads import usable_cores
from engine.runtime.workers import begin_call, begin_segment
from tests.engine.running import buffers
from tests.interrupting import HANGS_SECONDS, threads_of_system
from tests.program.programs import PROGRAMS, values_of
from tests.runtime.test_native_threads import refusing
from tests.runtime.test_workers import counting_table

pytestmark = pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    end_persistent_threads()
    assert not persistent()


def persistent() -> list[str]:
    return [name for name in threads_of_system().values() if name.startswith("persistent ")]


def shared(executable: Executable, monkeypatch: pytest.MonkeyPatch, workers: int = 2) -> None:
    """Makes an executable's calls of one step run by several workers from now on."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", str(workers))
    monkeypatch.setattr(executables, "inline_work", lambda: 0)
    executable._is_small = executable._is_fine_grained = False
    executable.choice.step_seconds = 0.0


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_of_other_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls for two sets of variables, arrays of any strides and rows in any order give the same bits."""
    module, roles = PROGRAMS[name]()
    parameters = list(zip(module.entry.parameters, roles, strict=True))
    given = [p for p, role in parameters if role == "feed"]
    found = []
    for is_shared in (False, True):
        executable = compile_module(module, roles, {})
        executable._may_be_brief = is_shared and executable._may_be_brief
        if is_shared:
            shared(executable, monkeypatch)
        held = [buffers(values_of([p for p, role in parameters if role == "variable"], seed=k)) for k in (1, 2)]
        bits = []
        for call in range(6):
            arrays = values_of(given, seed=call)
            orders = [np.arange(len(array))[::-1].copy() if array.ndim and call % 2 else None for array in arrays]
            feeds = [RowFeed(a if a.ndim else a[None], order) for a, order in zip(arrays, orders, strict=True)]
            outputs = executable.run(1, feeds, held[call // 2 % 2], "all" if call == 3 else "last")
            bits += [(each.dtype, each.shape, each.tobytes()) for each in outputs]
        found.append(bits + [h.read().tobytes() for each in held for h in each])
        if is_shared and executable._may_be_brief:
            executable.choice.step_seconds = 0.0  # the last call may have waited for other programs
            brief = executable.brief_call(held[0])
            assert isinstance(brief, SharedCall)
            strided = [np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array for array in arrays]
            for one, other in zip(brief.run(arrays), brief.run(strided), strict=True):
                if not executable.program.variables:
                    np.testing.assert_array_equal(one, other)
            assert len(persistent()) == 1
    assert found[0] == found[1]


def test_a_disturbed_call_is_followed_by_measured_ones() -> None:
    choice = WorkerChoice(lambda: math.inf)
    assert choice.workers(2, 0.0) == 2
    choice.note_steps(1, 0.001)
    choice.note_brief(0.0015, had_cores=True)
    assert choice.is_calm
    choice.note_brief(0.0015, had_cores=False)
    assert not choice.is_calm
    choice.note(2, 1, WINDOW_SECONDS / 2, [0.0, 0.0], 1.0)
    assert not choice.is_calm  # not measured for long enough
    choice.note(2, 1, WINDOW_SECONDS / 2, [0.0, 0.0], 1.1)
    assert choice.is_calm
    choice.note_brief(0.0031, had_cores=True)  # more than twice as long as the last one
    assert not choice.is_calm
    choice.note(2, 1, WINDOW_SECONDS, [0.0, WINDOW_SECONDS], 1.2)
    assert not choice.is_calm  # others use the cores


def test_the_caller_works_alone_while_others_use_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    module, roles = PROGRAMS["training"]()
    executable = compile_module(module, roles, {})
    parameters = list(zip(module.entry.parameters, roles, strict=True))
    held = buffers(values_of([p for p, role in parameters if role == "variable"], seed=1))
    shared(executable, monkeypatch)
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    choice = executable.choice
    assert isinstance(executable.brief_call(held), SharedCall)
    choice._fewer, choice._retry_at = 1, math.inf
    assert executable.brief_call(held) is None  # measured
    choice._prefers_fewer = True
    brief = executable.brief_call(held)
    assert isinstance(brief, BriefCall)
    brief.run(values_of([p for p, role in parameters if role == "feed"], seed=2))
    assert choice.step_seconds > 0.0
    assert not persistent()


def test_threads_end_before_forks_and_at_exit() -> None:
    """A forked child has no threads, and starts some; a process ends while its threads sleep."""
    program = """
import os
from tests.engine.test_shared_calls import persistent
from engine.runtime.persistent_threads import persistent_threads
from engine.runtime.executor import new_scratch, new_state
from engine.runtime.workers import begin_call, begin_segment
from tests.runtime.test_workers import counting_table
import numpy as np
counters = np.zeros(4, np.int64)
table, blocks = counting_table(counters, 2, pauses=1)
def call(times):
    scratch, state = new_scratch(2, 0), new_state(2)
    for _ in range(times):
        begin_call(1, state)
        begin_segment(table, 1, 0, 2, scratch, state)
        with persistent_threads(2) as threads:
            threads.call(state.ctypes.data, scratch.ctypes.data, scratch.strides[0])
call(500)
assert len(persistent()) == 1
child = os.fork()
if child == 0:
    assert not persistent()
    call(5)
    os._exit(0 if counters.tolist() == [505] * 4 and len(persistent()) == 1 else 1)
_, status = os.waitpid(child, 0)
assert status == 0 and not persistent()
call(1)
assert len(persistent()) == 1 and counters.tolist() == [501] * 4
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=HANGS_SECONDS)


@pytest.fixture
def counted() -> Iterator[tuple[np.ndarray, Callable[[], None]]]:
    """Counters, and a call of two workers that counts."""
    counters = np.zeros(4, np.int64)
    table, blocks = counting_table(counters, 2, pauses=1)

    def call() -> None:
        scratch, state = new_scratch(2, 0), new_state(2)
        begin_call(1, state)
        begin_segment(table, 1, 0, 2, scratch, state)
        with persistent_threads.persistent_threads(2) as threads:
            threads.call(state.ctypes.data, scratch.ctypes.data, scratch.strides[0])

    yield counters, call
    assert blocks


@pytest.mark.parametrize("workers", [3, 4, 7])
def test_more_workers_than_cores(workers: int) -> None:
    """Workers without a core sleep at barriers; another number of workers gets other threads."""
    for count in (workers, 2, workers):
        counters = np.zeros(2 * workers + 1, np.int64)
        table, blocks = counting_table(counters, count, pauses=1)
        scratch, state = new_scratch(count, 0), new_state(count)
        for _ in range(20):
            begin_call(1, state)
            begin_segment(table, 1, 0, count, scratch, state)
            with persistent_threads.persistent_threads(count) as threads:
                threads.call(state.ctypes.data, scratch.ctypes.data, scratch.strides[0])
        assert blocks and set(counters) == {20}
        assert len(persistent()) == count - 1


def test_threads_start_again_after_an_interrupted_end(
    counted: tuple[np.ndarray, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives where the codelet that ends them returns."""
    counters, call = counted
    call()
    original = persistent_threads.call_persistent

    def interrupted(*arguments: int) -> None:
        original(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(persistent_threads, "call_persistent", interrupted)
        with pytest.raises(KeyboardInterrupt):
            end_persistent_threads()
    call()
    assert counters.tolist() == [2] * 4


def test_a_call_within_a_call_of_the_same_thread_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler makes such a call, where the first call returns."""
    module, roles = PROGRAMS["training"]()
    parameters = list(zip(module.entry.parameters, roles, strict=True))
    arrays = values_of([p for p, role in parameters if role == "feed"], seed=2)
    found = []
    for within in (False, True):
        executable = compile_module(module, roles, {})
        held = buffers(values_of([p for p, role in parameters if role == "variable"], seed=1))
        shared(executable, monkeypatch)
        brief = executable.brief_call(held)
        assert isinstance(brief, SharedCall)
        with persistent_threads.persistent_threads(2) if within else contextlib.nullcontext():
            found.append([each.tobytes() for each in (*brief.run(arrays), *(h.read() for h in held))])
    assert found[0] == found[1]


def test_a_thread_that_cannot_start_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _kept = refusing(monkeypatch, made=1, when=lambda: bool(persistent()))
    with pytest.raises(InternalError, match="can't start new thread"), persistent_threads.persistent_threads(3):
        pass
    assert not persistent()
