"""Programs that cross features of the IPU have TensorFlow's results without it."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from tests.ipu_crossings.__main__ import shrink
from tests.ipu_crossings.check import Notes, check
from tests.ipu_crossings.plan import AXES, Plan, generate
from tests.ipu_crossings.source import source

PLAN = "kind=estimator accumulate=2 reduction=mean optimizer=rmsprop data=generator"


def test_a_program() -> None:
    assert check(Plan.read(PLAN)) == []


def test_plans_are_their_lines_and_every_option_makes_a_program() -> None:
    plans = [generate(seed) for seed in range(300)]
    assert [Plan.read(str(plan)).options for plan in plans] == [
        {axis: plan[axis] for axis in AXES if plan[axis] != AXES[axis][0]} for plan in plans
    ]
    for plan in plans:
        assert plan.is_sensible()
        ast.parse(source(plan))
    assert all(any(plan[axis] == option for plan in plans) for axis, options in AXES.items() for option in options)
    with pytest.raises(ValueError, match="Expected one of"):
        Plan.read("optimizer=nothing")


def test_a_failure_is_cut_down_to_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = lambda plan: ["value"] if {plan["optimizer"], plan["rate"]} == {"adam", "fed"} else []  # noqa: E731
    monkeypatch.setattr("tests.ipu_crossings.__main__.check", fails)
    plan = Plan.read("kind=while optimizer=adam rate=fed norm=group data=map")
    assert str(shrink(plan, ["value"])) == "optimizer=adam rate=fed"


def test_notes_of_replicas_are_their_means_and_batches() -> None:
    note = Notes(2)
    note("outfed", {"loss": np.array([[1.0, 3.0], [2.0, 6.0]]), "x": np.arange(8).reshape(1, 2, 2, 2)})
    ((label, found),) = note.items
    assert label == "outfed" and found["loss"].tolist() == [2.0, 4.0]
    assert found["x"].tolist() == [[[0, 1], [2, 3], [4, 5], [6, 7]]]
