"""The report as text and as a trace."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from html import escape
from pathlib import Path

from engine.profile.prediction import error_basis, prediction_error, trust_in_bytes, trust_in_cycles
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.validation import ESTIMATES, table_of_bounds
from engine.report.notebook import pictures_of
from engine.target import target
from tests.profile.test_pipeline_estimate import estimated
from tests.report.samples import program, report, too_large


def pipelined() -> Estimate:
    return estimated()[0]


def test_text_has_the_verdicts_the_summary_and_the_advice() -> None:
    data, lines = report().data, report().text().splitlines()
    assert max(map(len, lines)) <= 88
    text = "\n".join(lines)
    assert text.startswith("dense step: fits on Mk2 GC200")
    for each in data["targets"]:
        assert any(each["title"] in line and f"{each['margin_bytes']:,}" in line for line in lines)
    assert data["summary"] in text
    assert [line.strip()[:2] for line in lines if line.strip()[:2] in ("1.", "2.", "3.")] == ["1.", "2.", "3."]


def test_text_of_what_does_not_fit() -> None:
    data = too_large().data
    over = data["memory"]["peak_fullest"] - data["memory"]["limit_bytes"]
    assert f"DOES NOT FIT on Mk2 GC200, {over:,} bytes over" in too_large().text()


def test_the_trace_has_every_superstep_in_order() -> None:
    data, trace = report().data, json.loads(report().perfetto())
    events = trace["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    lanes = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] > 0 and event["name"]
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for lane in lanes.values():
        for (_, end), (begin, _) in zip(lane, lane[1:], strict=False):
            assert begin >= end - 1e-9
    busiest = lanes[1, 1]
    cycles = data["cycles"]["total"] - data["cycles"]["host"]
    assert abs(busiest[-1][1] - 1e6 * cycles / data["target"]["clock_hz"]) < 1e-6
    counters = [event for event in events if event["ph"] == "C"]
    assert [event["args"]["not always live"] for event in counters] == data["liveness"]["live_bytes"]


def test_a_prompt_shows_the_verdicts() -> None:
    lines = repr(report()).splitlines()
    assert lines[0].startswith("dense step: fits on Mk2 GC200") and len(lines) < 12
    assert report().text().startswith(repr(report()))


def test_a_notebook_shows_pictures_and_the_text() -> None:
    first, second = report()._repr_html_(), pictures_of(estimate(program(), target("ipu2")))
    assert first.endswith("</pre>") and "<pre>dense step: fits" in first
    for each in (first, second):
        assert each.count("<svg ") == 3 and ":root" not in each and ".software-ipu {" in each
    named = [set(re.findall(r'id="([^"]+)"', each)) for each in (first, second)]
    assert not named[0] & named[1]  # one page contains both
    assert pictures_of(pipelined().pipeline.ipus[0]).count("<svg ") == 3
    assert pictures_of(pipelined()).count("<svg ") == 4 and pictures_of("text") == ""


def test_report_pages_and_json_have_the_same_errors() -> None:
    found, data = estimate(program(), target("ipu2")), json.loads(report().json())
    text, page = (" ".join(form.split()) for form in (report().text(), report().html()))
    error, basis = prediction_error(found)["total"], error_basis(trust_in_cycles(found))
    held = trust_in_bytes(found)
    assert (data["cycles"]["error"], data["cycles"]["basis"]) == (error, basis)
    assert f"± {error:.0%} for the whole ({basis})." in text and escape(basis) in page
    assert f"Bytes: ± {held.error:.0%} ({error_basis((held,))})." in text
    rows = {row["name"]: row["estimate"] for group in data["about"]["calibration"] for row in group["rows"]}
    assert rows == json.loads(ESTIMATES.read_text())
    assert table_of_bounds() in (Path(__file__).parents[2] / "docs" / "chip_model.md").read_text()
