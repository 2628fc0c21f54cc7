"""The report's data: the documented keys, and sums that agree with one another and with the estimate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import engine.report
from engine.profile.options import Assumptions
from engine.profile.program_estimate import estimate
from engine.report import Report, make_report, on_other_chips
from engine.report.verdicts import CHIPS
from engine.target import target
from tests.profile.programs import dense_step
from tests.report.samples import program, report, too_large

SCHEMA = json.loads((Path(engine.report.__file__).parent / "schema.json").read_text())


@pytest.mark.parametrize("made", [report, too_large], ids=["fits", "does not fit"])
def test_data_keep_to_the_schema(made: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(made().json()), SCHEMA)


def test_the_schema_describes_every_level() -> None:
    def check(part: Any) -> None:
        if isinstance(part, dict):
            if "properties" in part:
                assert part["additionalProperties"] is False
            for each in part.values():
                check(each)
        elif isinstance(part, list):
            for each in part:
                check(each)

    check(SCHEMA)
    assert {"fits", "tiles", "cycles", "operations"} <= set(SCHEMA["required"])


def test_parts_add_up_to_the_step() -> None:
    data, found = report().data, estimate(program(), target("ipu2"))
    cycles = data["cycles"]
    assert cycles["total"] == cycles["compute"] + cycles["exchange"] + cycles["sync"] + cycles["host"]
    assert (cycles["compute"], cycles["exchange"], cycles["sync"]) == (found.compute, found.exchange, found.sync)
    assert cycles["host"] == found.host > 0
    for part in ("compute", "exchange", "sync"):
        assert sum(row[part] for row in data["operations"]) == cycles[part]
    assert 0 < cycles["error"] < 1


def test_every_tile_is_there() -> None:
    data, found = report().data, estimate(program(), target("ipu2"))
    assert [each["tile"] for each in data["tiles"]] == list(range(1472))
    assert [each["always_live_bytes"] for each in data["tiles"]] == found.tiles.always_live_bytes.tolist()
    assert [each["peak_bytes"] for each in data["tiles"]] == found.tiles.peak_bytes.tolist()
    assert max(each["peak_bytes"] for each in data["tiles"]) == data["memory"]["peak_fullest"]
    by_tile = [sum(sizes) for sizes in zip(*data["memory"]["categories"].values(), strict=True)]
    assert by_tile == [each["peak_bytes"] for each in data["tiles"]]
    assert data["liveness"]["always_live_bytes"] == sum(each["always_live_bytes"] for each in data["tiles"])


def test_flop_of_a_dense_layer() -> None:
    """The step computes x w and x' dy, 2 * 64 * 300 * 200 each, on the matrix engines, at a share of their peak."""
    data = report().data
    products = [row for row in data["operations"] if row["unit"] == "AMP"]
    assert [row["flop"] for row in products] == [2 * 64 * 300 * 200] * 2
    assert data["speed"]["amp_flop"] == {"f32": 4 * 64 * 300 * 200}
    chip = target("ipu2")
    share = 4 * 64 * 300 * 200 / chip.peak_flops("f32") / data["speed"]["seconds_per_step"]
    assert data["speed"]["amp_peak_share"] == pytest.approx(share)
    for row in products:
        assert row["peak_share"] == pytest.approx(row["flop"] / (1472 * 32 * row["cycles"]), rel=1e-3)
        assert row["dtype"] == "f32" and row["layer"] == "dense"


def test_a_verdict_on_each_chip() -> None:
    data = report().data
    assert tuple(each["name"] for each in data["targets"]) == CHIPS
    for each in data["targets"]:
        assert each["margin_bytes"] == each["bytes_per_tile"] - each["peak_bytes"]
        assert each["fits"] is (each["margin_bytes"] >= 0)
    chosen = next(each for each in data["targets"] if each["name"] == "ipu2")
    assert chosen["cycles"] == data["cycles"] and chosen["fits"] is data["fits"] is True


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("chosen", ["ipu1", "ipu2"])
def test_chips_of_one_die_get_the_estimate_that_they_would_get_alone(chosen: str, replicas: int) -> None:
    def again(chip: Any) -> Any:
        return estimate(program(), chip, replicas, Assumptions())

    found = again(target(chosen))
    others = {each.target.name: each for each in on_other_chips(found, again)}
    assert set(others) == set(CHIPS) - {chosen}
    for name, other in others.items():
        alone = again(target(name))
        assert (other.compute, other.exchange, other.sync, other.host) == (
            *(alone.compute, alone.exchange, alone.sync),
            alone.host,
        )
        assert other.memory == alone.memory and other.seconds_per_step == alone.seconds_per_step


def test_what_does_not_fit_is_the_first_advice() -> None:
    data = too_large().data
    over = data["memory"]["peak_fullest"] - data["memory"]["limit_bytes"]
    assert not data["fits"] and over > 0
    first = data["advice"][0]
    assert first["section"] == "memory" and f"{over:,}" in first["text"]
    assert data["memory"]["largest"][0]["name"] in first["text"]


def test_scaling_begins_with_the_step_and_loses_to_gradients() -> None:
    data = report().data
    rows = data["scaling"]["rows"]
    assert [row["replicas"] for row in rows] == [2**k for k in range(11)]
    assert data["scaling"]["gradient_bytes"] == 4 * (300 * 200 + 200)
    assert rows[0]["samples_per_second"] == pytest.approx(data["speed"]["samples_per_second"], rel=1e-3)
    assert rows[0]["efficiency"] == 1 and rows[0]["gradient_share"] == 0
    assert all(one["efficiency"] >= other["efficiency"] for one, other in zip(rows, rows[1:], strict=False))
    assert data["scaling"]["assumptions"].startswith("Assumed: ")


def test_three_recommendations_with_evidence() -> None:
    data = report().data
    assert len(data["advice"]) == 3
    sections = {"memory", "liveness", "trace", "pipeline", "operations", "exchange", "host"}
    for each in data["advice"]:
        assert each["section"] in sections and any(letter.isdigit() for letter in each["text"])
    gains = [each["gain"] for each in data["advice"]]
    assert gains == sorted(gains, reverse=True)


def test_half_precision_is_advised_where_products_are_single() -> None:
    large = make_report(dense_step(2048, 2048, 2048), target("ipu2"), chips=())
    assert "Multiply in half precision" in [each["title"] for each in large.data["advice"]]
    half = make_report(dense_step(2048, 2048, 2048, "f16"), target("ipu2"), chips=())
    titles = [each["title"] for each in half.data["advice"]]
    assert "Multiply in half precision" not in titles and "Try partial sums in float16" in titles
    options = Assumptions(partials_type="f16")
    told = make_report(dense_step(2048, 2048, 2048, "f16"), target("ipu2"), chips=(), assumptions=options)
    assert "Try partial sums in float16" not in [each["title"] for each in told.data["advice"]]
    assert told.data["speed"]["partials_type"] == "f16"


def test_a_report_survives_its_files(tmp_path: Path) -> None:
    files = report().save(tmp_path / "deep" / "report.html")
    assert [file.name for file in files] == ["report.html", "report.json", "report.trace.json", "report.txt"]
    for name in ("report.html", "report.json"):
        assert Report.load(tmp_path / "deep" / name).data == json.loads(report().json())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "{}"),
        ("a.json", "[1]"),
        ("a.json", "no"),
        ("a.json", '{"format": "software-ipu report", "version": 99}'),
        ("a.html", "<p>hello</p>"),
        ("a.html", '<script type="text/plain" id="packed">AAAA</script>'),
    ],
)
def test_files_that_are_no_reports(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match="Expected"):
        Report.load(tmp_path / name)
