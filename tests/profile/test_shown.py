"""Cost reports, plans and schedules as prompts and notebooks show them: short tables."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from engine.partition.schedule import Row
from engine.partition.schedule_table import ScheduleRows
from engine.profile.program_estimate import estimate
from engine.profile.scaling import predict, workload_of
from engine.profile.summary import summary
from engine.target import target
from tests.profile.programs import dense_step
from tests.profile.test_pipeline_estimate import estimated

MK2 = target("ipu2")


def check(shown: Any, text: str) -> None:
    """Asserts that an object shows this text, short enough for a terminal, and its columns in a notebook."""
    assert repr(shown) == text
    assert len(text.splitlines()) <= 32 and max(map(len, text.splitlines())) <= 88
    html = shown._repr_html_()
    assert "<pre>" in html and html.endswith("</pre>")


def test_estimates() -> None:
    found = estimate(dense_step(), MK2)
    check(found, summary(found))
    pipelined, _ = estimated()
    check(pipelined, summary(pipelined))
    check(pipelined.pipeline, pipelined.pipeline.table())
    check(pipelined.pipeline.ipus[1], pipelined.pipeline.table().splitlines()[-2])


def test_predictions_are_a_tuple_still() -> None:
    shown = predict(workload_of(estimate(dense_step(), MK2), 4000), MK2)
    plain = tuple(shown)
    check(shown, shown.table())
    assert shown == plain and shown[1:3] == plain[1:3] and isinstance(shown, tuple)
    for again in (copy.copy(shown), pickle.loads(pickle.dumps(shown))):
        assert again == plain and again.target == MK2


@pytest.mark.parametrize("kind", ["Grouped", "Interleaved", "Sequential"])
def test_a_schedule_has_a_line_for_each_ipu(kind: str) -> None:
    _, made = estimated(kind)
    schedule = made.schedule
    rows = ScheduleRows.of(schedule)
    assert rows == list(schedule.rows) and copy.copy(rows) == rows
    assert pickle.loads(pickle.dumps(rows)).title == rows.title
    title, *lines = rows.table(None).splitlines()
    assert title.startswith(f"{kind} schedule, 3 stages on 3 IPUs, 6 micro-batches")
    cells = [line.split()[2:] for line in lines]
    letters = {"forward": "F", "recompute": "R", "backward": "B", "update": "U"}
    for row in schedule.rows:
        number = "" if row.micro_batch is None else row.micro_batch
        assert cells[row.ipu][row.slot] == f"{letters[row.kind]}{number}"
    assert sum(cell != "." for line in cells for cell in line) == len(schedule.rows)
    check(rows, rows.table())


def test_long_schedules_are_cut_and_say_so() -> None:
    rows = ScheduleRows(Row(slot, slot % 2, slot % 2, "forward", slot) for slot in range(200))
    shown = repr(rows).splitlines()
    assert len(shown) == 3 and max(map(len, shown)) <= 88 and shown[2].startswith("and ")
    cut = len(shown[1].split()) - 2
    assert shown[2] == f"and {200 - cut} more slots"
    html = rows._repr_html_()
    assert "F199" in html and html.count("<rect ") == len(rows) == html.count("<title>")


def test_stages_that_share_an_ipu_are_told_apart() -> None:
    rows = ScheduleRows([Row(0, 0, 0, "forward", 3), Row(1, 0, 1, "backward", 3), Row(2, 0, 0, "update", None)])
    assert repr(rows) == "IPU 0 F0.3 B1.3    U" and repr(ScheduleRows([])) == "[]"
