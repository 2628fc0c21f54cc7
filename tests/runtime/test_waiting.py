"""Waiting workers pause or sleep; others may replace them between two steps of a call."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from engine.codelets.threads.waiting import WaitingBlock, pauses_per_second
from engine.runtime import delays, segments, threads, workers
from engine.runtime.choice import WorkerChoice
from engine.runtime.delays import delay_of
from engine.runtime.executor import new_scratch, new_state
from engine.runtime.workers import request_stop
from tests.interrupting import living_workers, wait_for
from tests.runtime.programs import Machine
from tests.runtime.test_executor import oracle_rotation, rotation_table

ENDLESS = 10**15
"""A number of steps that no call reaches in days."""


def block(kind: str) -> np.ndarray:
    """A waiting block that makes workers sleep at once, or pause for ever."""
    changed = workers._waiting_block().copy()
    changed[WaitingBlock.PAUSES] = 0 if kind == "sleep" else 1 << 62
    return changed


@pytest.mark.parametrize("kind", ["sleep", "pause"])
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


def test_delays_are_known_for_threads_of_this_process() -> None:
    assert delay_of(threading.get_native_id()) >= 0.0
    assert delay_of(2**22 + 1) == 0.0  # there is no such thread


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
    """Chooses another number of workers for every segment, never has patience, and stops after some segments."""

    def __init__(self, pieces: int, state: np.ndarray) -> None:
        super().__init__()
        self.pieces, self.state = pieces, state
        self.taken: list[tuple[int, int]] = []

    @property
    def is_crowded(self) -> bool:
        return True

    has_two = is_crowded

    def workers(self, most: int, now: float) -> int:
        return 1 + len(self.taken) % most

    def patience(self, now: float) -> float:
        return 0.002

    def note(self, workers: int, steps: int, seconds: float, delays: object, now: float) -> None:
        self.taken.append((workers, steps))
        if self.pieces and len(self.taken) >= self.pieces and self.has_gone_on():
            request_stop(self.state)

    def has_gone_on(self) -> bool:
        """Whether steps were completed, in the first segment or later."""
        return len(self.taken) > 1 and any(steps for _, steps in self.taken)


def rotated(values: np.ndarray, rounds: int) -> np.ndarray:
    """Result of `oracle_rotation`, for any number of rounds."""
    return np.roll(values, -(rounds % len(values))) + rounds


def run_fickle(choice: Fickle, most: int, steps: int, first: np.ndarray, state: np.ndarray) -> None:
    second, kept = np.zeros_like(first), []

    def table(count: int) -> np.ndarray:
        made, blocks = rotation_table(count, first, second)
        kept.append((made, blocks))
        return made

    workers.begin_call(steps, state)
    scratch = new_scratch(most, 64)
    segments.run_in_segments(choice, most, steps, table, lambda count: scratch[:count], state)


def test_rotations_in_one_go() -> None:
    values = np.arange(13, dtype=np.int64) * 1000
    for rounds in (0, 1, 13, 30):
        np.testing.assert_array_equal(rotated(values, rounds), oracle_rotation(values.copy(), rounds))


def test_other_workers_go_on_where_some_have_ended() -> None:
    start = np.arange(13, dtype=np.int64) * 1000
    first, state = start.copy(), new_state(3)
    choice = Fickle(9, state)
    run_fickle(choice, 3, ENDLESS, first, state)
    completed = workers.completed_steps(state)
    np.testing.assert_array_equal(first, rotated(start, 2 * completed))
    assert 0 < completed == sum(done for _, done in choice.taken) < ENDLESS
    assert [count for count, _ in choice.taken[:9]] == [1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert not living_workers()


def test_a_stop_ends_the_call_and_not_only_the_segment() -> None:
    first, state = np.arange(13, dtype=np.int64), new_state(2)
    start, choice = first.copy(), Fickle(0, state)
    # a late worker may find its segment changed before its first step
    stopper = threading.Thread(target=lambda: wait_for(choice.has_gone_on) and request_stop(state))
    stopper.start()
    run_fickle(choice, 2, ENDLESS, first, state)
    stopper.join()
    completed = workers.completed_steps(state)
    assert 0 < completed == sum(done for _, done in choice.taken) < ENDLESS
    np.testing.assert_array_equal(first, rotated(start, 2 * completed))
