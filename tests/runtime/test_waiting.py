"""Workers that wait: pausing, sleeping and yielding; changed for others between two steps of a call."""

from __future__ import annotations

import os
import sys
import threading
import time

import numpy as np
import pytest

from engine.codelets.waiting import Waiting, futex, pauses_per_second
from engine.runtime import delays, pieces, threads, workers
from engine.runtime.choice import WorkerChoice
from engine.runtime.delays import delay_here, delay_of
from engine.runtime.executor import new_scratch, new_state
from tests.interrupting import living_workers
from tests.runtime.programs import Machine
from tests.runtime.test_executor import oracle_rotation, rotation_table


def block(kind: str) -> np.ndarray:
    """A waiting block with which workers sleep at once, pause for ever, or yield."""
    changed = workers._waiting_block().copy()
    if kind == "yield":
        changed[Waiting.SYSCALL] = 0
    changed[Waiting.PAUSES] = 0 if kind == "sleep" else 1 << 62
    return changed


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["sleep", "pause", "yield"])
@pytest.mark.parametrize("count", [2, 4])
def test_every_way_of_waiting_orders_all_memory(kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "pause" and count > threads.usable_cores():
        count = 2
    changed = block(kind)
    monkeypatch.setattr(workers, "_waiting_block", lambda: changed)
    steps = 200
    first = np.arange(13, dtype=np.int64) * 1000
    expected = oracle_rotation(first.copy(), 2 * steps)
    table, _blocks = rotation_table(count, first, np.zeros_like(first))
    assert Machine(count).run(table, steps) == steps
    np.testing.assert_array_equal(first, expected)


def test_what_the_system_offers() -> None:
    assert 1e5 < pauses_per_second() < 1e11
    address, number = futex()
    assert bool(address) == bool(number)


def test_delays_are_known_for_threads_of_this_process() -> None:
    assert delay_here() >= 0.0
    assert delay_of(threading.get_native_id()) >= 0.0
    assert delay_of(2**22 + 1) == 0.0  # no such thread


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="delays are known on Linux only")
def test_a_thread_that_ends_while_it_is_asked_has_no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()

    def open_too_late(path: str, *arguments: object, **options: object) -> object:
        file = open(path, "rb", buffering=0)
        end.set()
        thread.join()
        while os.path.exists(path):
            time.sleep(0.001)
        return file

    monkeypatch.setattr(delays, "open", open_too_late, raising=False)
    assert delay_of(thread.native_id or 0) == 0.0


class Fickle(WorkerChoice):
    """Takes another number of workers for every piece, and never has patience."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[int, int]] = []

    @property
    def is_crowded(self) -> bool:
        return True

    def workers(self, most: int, now: float) -> int:
        return 1 + len(self.taken) % most

    def patience(self, now: float) -> float:
        return 0.002

    def note(self, workers: int, steps: int, seconds: float, delays: object, now: float) -> None:
        self.taken.append((workers, steps))


def run_fickle(choice: Fickle, most: int, steps: int, first: np.ndarray, state: np.ndarray) -> None:
    second, kept = np.zeros_like(first), []

    def table(count: int) -> np.ndarray:
        made, blocks = rotation_table(count, first, second)
        kept.append((made, blocks))
        return made

    workers.begin_call(steps, state)
    scratch = new_scratch(most, 64)
    pieces.run_in_pieces(choice, most, steps, table, lambda count: scratch[:count], state)


@pytest.mark.usefixtures("way")
def test_other_workers_go_on_where_some_have_ended() -> None:
    steps = 100_000
    first = np.arange(13, dtype=np.int64) * 1000
    expected = oracle_rotation(first.copy(), 2 * steps)
    choice, state = Fickle(), new_state(3)
    run_fickle(choice, 3, steps, first, state)
    np.testing.assert_array_equal(first, expected)
    assert workers.completed_steps(state) == steps == sum(done for _, done in choice.taken)
    assert {count for count, _ in choice.taken} == {1, 2, 3}
    assert not living_workers()


@pytest.mark.usefixtures("way")
def test_a_stop_ends_the_call_and_not_only_the_piece() -> None:
    first, state, choice = np.arange(13, dtype=np.int64), new_state(2), Fickle()
    start = first.copy()
    timer = threading.Timer(0.1, workers.request_stop, [state])
    timer.start()
    run_fickle(choice, 2, 10**9, first, state)
    timer.join()
    completed = workers.completed_steps(state)
    assert 0 < completed < 10**9
    np.testing.assert_array_equal(np.sort(first), np.sort(start + 2 * completed))
