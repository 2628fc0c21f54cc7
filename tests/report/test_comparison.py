"""Two reports beside each other: layers of models made one after another, the text, and its order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.report import Report
from engine.report.command import main
from engine.report.comparison import compare, same_layers
from tests.report.samples import report
from tests.report.test_data import SCHEMA


def called(names: dict[str, str], growth: int = 0) -> Report:
    """The report with other names of layers, and more cycles in the first operation."""
    data = json.loads(report().json())
    for row in data["operations"]:
        row["name"] = " ".join(names.get(word, word) for word in row["name"].split(" "))
        row["layer"] = names.get(row["layer"], row["layer"])
    for key in ("compute", "cycles"):
        data["operations"][0][key] += growth
    data["cycles"]["compute"] += growth
    data["cycles"]["total"] += growth
    return Report(data)


def rows(*layers: str) -> dict[str, Any]:
    return {"operations": [{"name": f"{layer} MatMul", "layer": layer} for layer in layers]}


def test_layers_of_a_second_model_are_those_of_the_first() -> None:
    found = compare(report(), called({"dense": "dense_3", "sgd": "sgd_1"}, growth=1000))
    assert found.layers == (("dense_3", "dense"), ("sgd_1", "sgd"))
    assert [line.difference for line in found.operations] == [1000]
    assert found.operations[0].name.startswith("dense_3 ")
    assert "dense_3 (dense before), sgd_1 (sgd before)" in found.text()
    jsonschema.validate(json.loads(found.report().json()), SCHEMA)
    assert "dense_3 (dense before)" in found.report().html()


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (("conv2d", "conv2d_1"), ("conv2d_2", "conv2d_3"), {"conv2d_2": "conv2d", "conv2d_3": "conv2d_1"}),
        (("conv2d_9", "conv2d_10"), ("conv2d_11", "conv2d_12"), {"conv2d_11": "conv2d_9", "conv2d_12": "conv2d_10"}),
        (("conv2d_2", "conv2d_3"), ("conv2d_3", "conv2d_4"), {"conv2d_3": "conv2d_2", "conv2d_4": "conv2d_3"}),
        # The second model has one more layer at its end.
        (("dense", "dense_1"), ("dense_2", "dense_3", "dense_4"), {"dense_2": "dense", "dense_3": "dense_1"}),
        # The same names, one of which is gone or new: names of users, or of Keras in two processes.
        (("block_1", "block_2", "block_3"), ("block_2", "block_3"), {}),
        (("dense", "dense_1"), ("dense", "dense_1", "dense_2"), {}),
        (("first", "second"), ("first", "third"), {}),
    ],
)
def test_which_names_are_the_same(before: tuple[str, ...], now: tuple[str, ...], same: dict[str, str]) -> None:
    assert same_layers(rows(*before), rows(*now)) == same


def test_a_new_layer_with_the_number_of_another_is_new() -> None:
    def with_cycles(cycles: dict[str, int]) -> Report:
        data = json.loads(report().json())
        first = data["operations"][0]
        data["operations"] = [
            {**first, "name": f"{layer} MatMul", "layer": layer, "cycles": each} for layer, each in cycles.items()
        ]
        return Report(data)

    found = compare(
        with_cycles({"dense_6": 60, "dense_7": 70}), with_cycles({"dense_4": 60, "dense_5": 75, "dense_6": 9})
    )
    assert {line.name: (line.before, line.now) for line in found.operations} == {
        "dense_5 MatMul": (70, 75),
        "dense_6 MatMul": (0, 9),
    }


def test_compare_writes_one_page_and_opens_on_the_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now, page = tmp_path / "before.json", tmp_path / "now.json", tmp_path / "deep" / "difference.html"
    before.write_text(report().json())
    now.write_text(called({}, growth=100).json())
    assert main(["compare", str(before), str(now), "--html", str(page)]) == 0
    assert [file.name for file in page.parent.iterdir()] == ["difference.html"]
    out = capsys.readouterr().out
    growth = 100 * 100 / report().data["cycles"]["total"]
    assert out.startswith(f"dense step against dense step: +{growth:.1f} % cycles")
    assert str(page) in out.splitlines()[-1]
    assert re.findall(r'<section id="(\w+)"', page.read_text())[:2] == ["comparison", "verdict"]
    assert re.findall(r'<a href="#(\w+)">', page.read_text())[0] == "comparison"
    assert Report.load(page).text().startswith("dense step against dense step")
    assert main(["compare", str(before), str(now)]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["before.json", "deep", "now.json"]
