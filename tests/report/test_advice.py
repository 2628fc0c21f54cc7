"""Advice: shares are shares of something, and no proposal is one that cannot help."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import jsonschema
import pytest

from engine.compile import build_program
from engine.profile.levers import Lever
from engine.profile.pipeline_estimate import estimate_pipeline
from engine.profile.program_estimate import Estimate
from engine.report import Report, report_on
from engine.report.advice import FINDERS, advice
from engine.report.operations import work_cycles
from engine.target import target
from tests.profile.test_pipeline_estimate import made
from tests.report.samples import report, too_large
from tests.report.test_data import SCHEMA

MK2 = target("ipu2")


@cache
def pipelined(kind: str = "Grouped", width: int = 128) -> Estimate:
    return estimate_pipeline(made(kind, width=width)[0], MK2, build_program)


def advised(estimate: Estimate, **changes: Any) -> dict[str, str]:
    """All advice by title, the three that are shown or not."""
    data = {**report_on(estimate).data, **changes}
    return {each.title: each.text for find in FINDERS for each in find(data, estimate)}


def percent_in(text: str) -> float:
    return float(text.partition(" %")[0].split()[-1])


@pytest.mark.parametrize("kind", ["Grouped", "Sequential"])
def test_shares_of_a_pipeline_are_of_the_work_of_all_ipus(kind: str) -> None:
    estimate = pipelined(kind)
    data = report_on(estimate).data
    rows = data["operations"]
    work = work_cycles(data)
    assert work == sum(row["cycles"] for row in rows)
    single = sum(row["compute"] for row in rows if row["unit"] == "AMP" and row["dtype"] == "f32")
    text = advised(estimate)["Multiply in half precision"]
    assert percent_in(text) == pytest.approx(100 * single / work, abs=0.6) and "the work of all IPUs" in text
    assert data["exchange"]["on_chip_cycles"] == sum(row["exchange"] for row in rows)
    assert 0 < data["exchange"]["start_cycles"] <= data["exchange"]["on_chip_cycles"]


def test_products_of_many_ipus_are_no_more_than_all() -> None:
    """Wide layers' products take more cycles on all IPUs together than one step of the pipeline has."""
    estimate = pipelined("Sequential", 512)
    for text in advised(estimate).values():
        assert all(float(part.split()[-1]) <= 100 for part in text.split(" %")[:-1] if part.split()[-1][0].isdigit())


def test_bubbles_are_explained_by_what_makes_them() -> None:
    assert "one IPU works at a time" in advised(pipelined("Sequential"))["Fill the pipeline"]
    estimate = pipelined()
    pipeline = estimate.pipeline
    assert pipeline is not None
    before = sum(cost.cycles for cost in pipeline.critical if cost.kind != "update")
    ramp = max(0, before - pipeline.micro_batches * pipeline.period) / before
    text = advised(estimate)["Fill the pipeline"]
    assert percent_in(text) == pytest.approx(100 * pipeline.bubble_share, abs=0.6)
    assert "before the update" in text and f"{100 * ramp:.0f} % of them" in text


def test_transfers_of_a_pipeline_are_no_gradients_of_replicas() -> None:
    titles = advised(pipelined(width=256))
    assert "Exchange gradients less often" not in titles and "Exchange less between IPUs" in titles


def test_a_counter_is_no_operation_to_spread_or_to_begin_with() -> None:
    """The step of a counter or a seed takes as many cycles on one tile as the rest of the step."""
    data = report().data
    row = {**data["operations"][0], "name": "adam Add", "tiles": 1, "bytes": 16, "runs": 1, "dtype": "s64"}
    row |= {"compute": 10**6, "cycles": 10**6}
    estimate = estimate_of_report()
    changed = {**data, "operations": [*data["operations"], row]}
    texts = [each.text for find in FINDERS for each in find(changed, estimate)]
    assert not any("adam Add" in text for text in texts)
    spread = [{**row, "name": "dense Tanh", "bytes": 10**5}]
    texts = [each.text for find in FINDERS for each in find({**data, "operations": spread}, estimate)]
    assert sum("dense Tanh" in text for text in texts) == 2 and any("on 1 tile," in text for text in texts)


def estimate_of_report() -> Estimate:
    from engine.profile.program_estimate import estimate
    from tests.report.samples import program

    return estimate(program(), MK2)


@pytest.mark.parametrize(
    ("helps", "words"),
    [
        ((), "Nothing that was estimated makes it fit, alone or together"),
        ((Lever("less", 5, False),), "Nothing that was estimated makes it fit"),
        (
            (Lever("less", 5, False), Lever("half", 10**9, True)),
            "Each of these alone makes it fit: half (1,000,000,000",
        ),
        ((Lever("a + b", 7, True, alone=False), Lever("a", 5, False)), "Together these do: a + b (7 bytes less)"),
    ],
)
def test_only_what_suffices_is_proposed(helps: tuple[Lever, ...], words: str) -> None:
    estimate = replace(estimate_of_report(), target=target("ipu2", tiles=1472))
    memory = replace(estimate.memory, peak_fullest=10**6)
    made = report_on(replace(estimate, memory=memory), helps=helps)
    first = made.data["advice"][0]["text"]
    assert words in first and "less (5" not in first and "; a (5" not in first
    jsonschema.validate(json.loads(made.json()), SCHEMA)


def test_a_pipeline_that_does_not_fit_is_sent_to_its_planner() -> None:
    estimate = pipelined()
    memory = replace(estimate.memory, peak_fullest=10**6)
    text = advice(report_on(replace(estimate, memory=memory)).data, estimate)[0].text
    assert "plan_pipeline" in text and "IPUs may help" not in text


@pytest.mark.parametrize("made", [report, too_large, lambda: report_on(pipelined())], ids=["fits", "not", "pipeline"])
def test_a_file_has_one_number_of_cycles_for_a_step(made: Any) -> None:
    """The page's figure, the rows of the chips, the summary and the time of a step agree."""
    found: Report = made()
    data, total = found.data, found.cycles["total"]
    assert total == sum(found.cycles[part] for part in ("compute", "exchange", "sync", "host"))
    assert data["speed"]["seconds_per_step"] == pytest.approx(total / data["target"]["clock_hz"])
    assert f"Cycles per step: {total:,}, " in data["summary"]
    assert next(each for each in data["targets"] if each["name"] == "ipu2")["cycles"] == data["cycles"]


def test_the_error_is_said_to_be_of_figures_that_were_held_out() -> None:
    made = report_on(replace(estimate_of_report(), host=0))
    kept = {each["group"]: each for each in made.data["about"]["bounds"]}
    bound = kept["recurrent and small-step programs"]
    assert made.cycles["error"] == pytest.approx(bound["rms"])
    for text in (made.text(), made.html()):
        words = " ".join(text.split())
        assert f"rms {bound['rms']:.0%}, worst {bound['worst']:+.0%} of {bound['held_out']} figures held out" in words
