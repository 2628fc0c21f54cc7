"""`ipu-profile` and the comparison of two reports."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine.files.executable_file import ExecutableFile, write_executable
from engine.ir.builder import Builder
from engine.report import Report
from engine.report.command import main
from engine.report.comparison import compare
from tests.report.samples import report, too_large

ROOT = Path(__file__).parents[2]


def scaled(growth: float) -> Report:
    """The report with more compute cycles; `growth` is their share of all cycles."""
    data = json.loads(report().json())
    more = round(growth * data["cycles"]["total"])
    data["cycles"]["compute"] += more
    data["cycles"]["total"] += more
    longest = max(data["operations"], key=lambda row: row["compute"])
    longest["compute"] += more
    longest["cycles"] += more
    return Report(data)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    made = {"same": scaled(0.0), "slower": scaled(0.05), "little": scaled(0.02), "faster": scaled(-0.01)}
    for name, each in made.items():
        (folder / f"{name}.json").write_text(each.json())
    return {name: folder / f"{name}.json" for name in made}


@pytest.mark.parametrize(
    ("now", "options", "code"),
    [
        ("same", (), 0),
        ("little", (), 0),
        ("slower", (), 1),
        ("faster", (), 0),
        ("slower", ("--threshold", "10"), 0),
        ("little", ("--threshold", "1"), 1),
    ],
)
def test_compare_exits_with_1_for_too_many_more_cycles(
    files: dict[str, Path], now: str, options: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(files["same"]), str(files[now]), *options]) == code
    out = capsys.readouterr().out
    assert ("allowed" in out) and max(map(len, out.splitlines())) <= 90


def test_what_fits_no_longer_is_a_regression() -> None:
    found = compare(report(), Report({**report().data, "fits": False}))
    assert found.growth == 0 and found.regressed and "no longer fits" in found.verdict
    assert not compare(too_large(), too_large()).regressed


def test_the_differences_are_named() -> None:
    found = compare(report(), scaled(0.05))
    name = report().data["operations"][0]["name"]
    assert [line.name for line in found.operations] == [name]
    assert found.operations[0].difference == round(0.05 * report().cycles["total"])
    assert found.growth == pytest.approx(0.05, rel=0.01)
    assert {line.name for line in found.parts} == {"compute", "exchange", "sync", "host", "total"}


def test_the_comparison_is_a_section_of_the_page(files: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    assert main(["compare", str(files["same"]), str(files["slower"]), "--html", str(page)]) == 1
    html = page.read_text()
    assert 'id="comparison"' in html and "more than the 3 % allowed" in html
    assert Report.load(page).data["comparison"]["growth"] == pytest.approx(0.05, rel=0.01)


def test_make_writes_all_forms_and_print_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "r.json"
    source.write_text(report().json())
    assert main(["make", str(source), "-o", str(tmp_path / "page.html")]) == 0
    assert "page.trace.json" in capsys.readouterr().out
    assert main(["print", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == report().text()


def test_make_compiles_an_executable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ipu._internal.compiler.executable_files import unnamed_file

    b = Builder("doubling")
    x = b.parameter("f32", (1000,))
    module = b.module(b.tuple(b.add(x, x)))
    file: ExecutableFile = unnamed_file(module, ["feed"], {})
    write_executable(tmp_path / "doubling.poplar_exec", file)
    assert main(["make", str(tmp_path / "doubling.poplar_exec"), "--target", "bow", "--check"]) == 0
    made = Report.load(tmp_path / "doubling.json")
    assert made.data["target"]["name"] == "bow" and made.data["name"] == "doubling" and made.fits
    capsys.readouterr()


def test_check_exits_with_1_for_what_does_not_fit(tmp_path: Path) -> None:
    source = tmp_path / "r.json"
    source.write_text(too_large().json())
    assert main(["make", str(source), "--check"]) == 1
    assert main(["make", str(source)]) == 0


def test_what_is_no_report_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.json").write_text("{}")
    assert main(["print", str(tmp_path / "no.json")]) == 2
    assert main(["print", str(tmp_path / "missing.json")]) == 2
    assert "Expected a report" in capsys.readouterr().err
    with pytest.raises(SystemExit) as raised:
        main(["frobnicate"])
    assert raised.value.code == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cycles", {"total": "x"}),
        ("cycles", None),
        ("cycles", float("nan")),
        ("operations", [3]),
        ("memory", {}),
        ("tiles", [{"tile": True}]),
        ("targets", None),
        ("operations", [{"flop": float("inf")}]),
    ],
)
def test_a_damaged_report_is_no_regression(key: str, value: Any, files: dict[str, Path], tmp_path: Path) -> None:
    before = next(iter(files.values()))
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(json.loads(Report.load(before).json()) | {key: value}))
    assert main(["compare", str(before), str(damaged)]) == main(["print", str(damaged)]) == 2


def test_the_command_is_installed_under_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["ipu-profile"] == "engine.report.command:main"
    assert {"vl-convert-python", "jinja2"} <= {
        each.split(">")[0] for each in project["optional-dependencies"]["report"]
    }
