"""A schedule in time against figures worked out by hand: two stages, three micro-batches."""

from __future__ import annotations

import pytest

from engine.partition.schedule import devices_of, make_schedule
from engine.profile.schedule_timing import lay_out
from engine.profile.step_costs import PartCost

COSTS = {
    ("forward", 0): PartCost("forward", 0, compute=80, exchange=15, sync=5),
    ("forward", 1): PartCost("forward", 1, compute=60, exchange=4, sync=5, links=1),
    ("backward", 1): PartCost("backward", 1, compute=170, exchange=20, sync=10),
    ("backward", 0): PartCost("backward", 0, compute=100, exchange=25, sync=5, links=20),
    ("update", 0): PartCost("update", 0, compute=30),
    ("update", 1): PartCost("update", 1, compute=50),
}
"""Costs of parts, which are 100, 70, 200, 150, 30 and 50 in all."""
SLOTS = {
    "Grouped": [100, 100, 100, 200, 70, 200, 200, 150, 50],
    # F0.0 | F1.0 | F0.1 B1.0 | B0.0 F1.1 | F0.2 B1.1 | B0.1 F1.2 | B1.2 | B0.2
    "Interleaved": [100, 70, 200, 150, 200, 150, 200, 150, 50],
    "Sequential": [100, 70, 200, 150] * 3 + [50],
}


def laid_out(kind, devices=None, training=True, micro_batches=3, recomputation="none"):
    schedule = make_schedule(
        kind, devices_of(2, devices), micro_batches, training=training, recomputation=recomputation
    )
    return schedule, lay_out(schedule, COSTS)


@pytest.mark.parametrize("kind", SLOTS)
def test_each_slot_is_as_long_as_its_longest_row(kind) -> None:
    schedule, layout = laid_out(kind)
    assert [cost.cycles for cost in layout.critical] == SLOTS[kind]
    assert layout.cycles == sum(SLOTS[kind])
    starts = {row.slot: row.start for row in layout.rows}
    assert [starts[slot] for slot in range(schedule.slots)] == [sum(SLOTS[kind][:k]) for k in range(schedule.slots)]


@pytest.mark.parametrize("kind", SLOTS)
def test_bubbles_in_cycles(kind) -> None:
    schedule, layout = laid_out(kind)
    whole = sum(SLOTS[kind][:-1])
    assert layout.busy(update=False) == {0: 3 * (100 + 150), 1: 3 * (70 + 200)}
    assert layout.busy(update=True) == {0: 780, 1: 860}
    assert layout.waits() == pytest.approx({0: 1 - 750 / whole, 1: 1 - 810 / whole})
    durations = {key: float(cost.cycles) for key, cost in COSTS.items()}
    assert layout.waits() == pytest.approx(schedule.bubbles(durations))


def test_the_period_is_what_one_more_micro_batch_takes() -> None:
    assert laid_out("Grouped")[1].period == 100 + 200
    assert laid_out("Interleaved")[1].period == 200 + 150
    assert laid_out("Sequential")[1].period == 100 + 70 + 200 + 150
    for kind in SLOTS:
        few, many = (laid_out(kind, micro_batches=n)[1] for n in (12, 13))
        assert many.cycles - few.cycles == many.period


def test_stages_on_one_ipu_take_turns() -> None:
    _, layout = laid_out("Grouped", devices=[0, 0])
    assert layout.busy(update=True) == {0: 3 * (100 + 70 + 200 + 150) + 80}
    assert layout.waits() == {0: 0.0}
    assert layout.period == 100 + 70 + 200 + 150


def test_inference_has_forward_rows_only() -> None:
    _, layout = laid_out("Grouped", training=False)
    assert {row.kind for row in layout.rows} == {"forward"}
    assert layout.cycles == 100 + 100 + 100 + 70


def test_a_row_keeps_the_place_it_has_in_the_schedule() -> None:
    schedule, layout = laid_out("Interleaved")
    assert [(r.slot, r.ipu, r.stage, r.kind, r.micro_batch) for r in layout.rows] == [
        (r.slot, r.ipu, r.stage, r.kind, r.micro_batch) for r in schedule.rows
    ]
    assert all(row.cycles == COSTS[row.kind, row.stage].cycles for row in layout.rows)


def test_parts_without_a_cost_take_no_time() -> None:
    schedule = make_schedule("Sequential", devices_of(2, None), 3, training=True)
    assert lay_out(schedule, {}).cycles == 0
    assert lay_out(schedule, {}).waits() == {0: 0.0, 1: 0.0}
