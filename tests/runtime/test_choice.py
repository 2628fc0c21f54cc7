"""Choice of the number of workers for the next steps: the choice alone, on a simulated machine."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import pytest

from engine.runtime.choice import LONGEST_WAIT, WINDOW_SECONDS, WorkerChoice, losers


@dataclass
class Machine:
    """`cores` cores, `strangers` busy threads. One worker makes a step in `work` seconds, more of them faster.

    A worker on a core with a busy thread has it for half of the time, and other workers wait.
    """

    cores: int = 2
    strangers: int = 0
    wasted: float = 2.0
    """Factor by which the barriers together lengthen a step."""
    now: float = 0.0
    tells: bool = True
    """Whether the system says for how long the cores were idle."""
    idle: float = 0.0
    work: float = 0.001
    """Seconds of a step on one worker."""
    slowed: float = 1.0
    """Factor by which a step of several workers takes longer, because the cores are far apart."""

    def choice(self) -> WorkerChoice:
        return WorkerChoice(lambda: self.idle if self.tells else math.inf)

    def run(self, choice: WorkerChoice, most: int, seconds: float, call: float = 0.004) -> list[int]:
        """Runs calls of about `call` seconds one after another; returns the number of workers of each."""
        chosen, end = [], self.now + seconds
        while self.now < end:
            workers = choice.workers(most, self.now)
            sharing = max(0, min(workers, workers + self.strangers - self.cores))
            held_up = bool(sharing) and workers > 1
            step = self.work / workers * (2 * self.wasted if held_up else 1) * (self.slowed if workers > 1 else 1)
            steps = max(1, round(call / step))
            delays = [0.5 * steps * step if worker < sharing else 0.0 for worker in range(workers)]
            self.now += steps * step
            self.idle += max(0, self.cores - workers - self.strangers) * steps * step
            choice.note(workers, steps, steps * step, delays, self.now)
            chosen.append(workers)
        return chosen


def test_a_quiet_machine_stays_undisturbed() -> None:
    machine = Machine(cores=8, work=0.01)
    choice = machine.choice()
    assert set(machine.run(choice, 8, 10.0)) == {8}
    assert not choice.is_crowded


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("strangers", [1, 2, 5])
def test_one_of_two_workers_goes_on_beside_strangers(strangers: int, tells: bool) -> None:
    machine = Machine(strangers=strangers, tells=tells)
    choice = machine.choice()
    first = machine.run(choice, 2, 0.2)
    assert first[0] == 2
    assert first.index(1) * 0.004 <= 2 * WINDOW_SECONDS
    later = machine.run(choice, 2, 20.0)
    assert later.count(1) > (0.98 if tells else 0.93) * len(later)
    assert 2 in later  # it is tried again now and then


@pytest.mark.parametrize("tells", [True, False])
def test_all_workers_come_back_when_the_strangers_have_gone(tells: bool) -> None:
    machine = Machine(strangers=2, tells=tells)
    choice = machine.choice()
    machine.run(choice, 2, 5.0)
    machine.strangers = 0
    machine.run(choice, 2, LONGEST_WAIT + 2 * WINDOW_SECONDS)
    assert set(machine.run(choice, 2, 5.0)) == {2}
    assert not choice.is_crowded


def test_all_workers_go_on_where_fewer_are_slower() -> None:
    machine = Machine(strangers=1, wasted=0.6)
    choice = machine.choice()
    later = machine.run(choice, 2, 20.0)
    assert later.count(2) > 0.9 * len(later)
    assert 1 in later  # it was tried
    machine.wasted = 2.0
    machine.run(choice, 2, 2.0)
    later = machine.run(choice, 2, 20.0)
    assert later.count(1) > 0.9 * len(later)


def test_as_many_workers_leave_as_there_are_strangers() -> None:
    machine = Machine(cores=16, strangers=3)
    choice = machine.choice()
    machine.run(choice, 16, 1.0)
    later = machine.run(choice, 16, 10.0)
    assert later.count(13) > 0.9 * len(later)


def test_a_short_disturbance_costs_little() -> None:
    machine = Machine(strangers=2)
    choice = machine.choice()
    machine.run(choice, 2, 0.03)
    machine.strangers = 0
    calls = machine.run(choice, 2, 1.0)
    assert calls.count(2) > 0.9 * len(calls)


def test_another_greatest_number_starts_again() -> None:
    machine = Machine(strangers=2)
    choice = machine.choice()
    machine.run(choice, 2, 1.0)
    assert choice.is_crowded
    assert choice.workers(3, machine.now) == 3
    assert not choice.is_crowded


@pytest.mark.parametrize(
    ("delays", "expected"),
    [
        ([0.0, 0.0], 0),
        ([0.04, 0.04], 0),  # all workers lose a little
        ([0.2, 0.0], 0),  # fewer workers would lose more
        ([0.3, 0.0], 1),
        ([0.5, 0.5], 2),
        ([0.5] + [0.0] * 15, 1),
        ([0.08] + [0.0] * 15, 0),
        ([], 0),
    ],
)
def test_who_loses(delays: list[float], expected: int) -> None:
    assert losers(1.0, delays) == expected
    assert losers(0.01, [0.01 * delay for delay in delays]) == expected


def test_patience_ends_when_the_choice_is_made_again() -> None:
    machine = Machine(strangers=2, tells=False)
    choice = machine.choice()
    assert choice.patience(0.0) == WINDOW_SECONDS
    machine.run(choice, 2, 5.0)
    while choice.workers(2, machine.now) == 2:
        machine.run(choice, 2, 0.001)
    later = machine.now + choice.patience(machine.now)
    assert later <= machine.now + LONGEST_WAIT
    assert choice.workers(2, later + 1e-9) == 2


def test_a_change_is_told(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(strangers=2)
    choice = machine.choice()
    with caplog.at_level(logging.DEBUG, "ipu"):
        machine.run(choice, 2, 1.0)
        machine.strangers = 0
        machine.run(choice, 2, 1.0)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "Other threads use the cores: 1 of 2 workers, 1.000 ms a step instead of 2.000.",
        "The cores are free again: 2 workers.",
    ]


def test_short_steps_take_one_worker_while_the_cores_are_far_apart() -> None:
    machine = Machine(work=0.00017)
    choice = machine.choice()
    near = machine.run(choice, 2, 60.0)
    assert 0 < near.count(1) < 0.01 * len(near)  # trials
    machine.slowed = 3.0  # 255 microseconds by two workers
    machine.run(choice, 2, 0.2)
    far = machine.run(choice, 2, 20.0)
    assert 0 < far.count(2) < 0.05 * len(far)
    assert not choice.is_crowded
    machine.slowed = 1.0
    machine.run(choice, 2, LONGEST_WAIT + 2 * WINDOW_SECONDS)
    assert machine.run(choice, 2, 20.0).count(1) < 100


def test_short_calls_with_long_pauses_are_seldom_on_trial() -> None:
    machine = Machine(work=0.0004)
    choice, chosen = machine.choice(), list[int]()
    for _ in range(60):  # as epochs of a small data set, with other work between them
        chosen += machine.run(choice, 2, 0.06, call=0.03)
        machine.now += 2.0
        machine.idle += 4.0
    assert 0 < chosen.count(1) < 0.1 * len(chosen)


def test_programs_that_run_between_calls_leave_all_workers() -> None:
    machine = Machine(work=0.0004)
    choice, chosen = machine.choice(), list[int]()
    for turn in range(60):  # the other programs have all cores in their turns, and at times for some of ours
        machine.strangers = 1 if turn % 3 == 0 else 0
        chosen += machine.run(choice, 2, 0.06, call=0.0003)
        machine.now += 0.24
    assert chosen.count(1) < 0.4 * len(chosen)


def test_strangers_come_while_the_cores_are_far_apart() -> None:
    machine = Machine(work=0.00017, slowed=3.0)
    choice = machine.choice()
    machine.run(choice, 2, 2.0)
    machine.strangers = 2
    assert machine.run(choice, 2, 10.0).count(1) > 900
    machine.strangers, machine.slowed = 0, 1.0
    machine.run(choice, 2, 2.0)
    assert set(machine.run(choice, 2, 0.1)) == {2}


def test_four_workers_halve_where_cores_are_far_apart() -> None:
    machine = Machine(cores=4, work=0.00017, slowed=9.0)
    chosen = machine.run(machine.choice(), 4, 5.0)
    assert set(chosen) == {2, 4}


def test_long_steps_are_not_tried_on_fewer_workers() -> None:
    machine = Machine(work=0.002, slowed=3.0)
    assert set(machine.run(machine.choice(), 2, 30.0)) == {2}
