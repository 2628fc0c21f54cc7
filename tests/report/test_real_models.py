"""Pages of a convolutional network, an LSTM and a pipelined transformer: all charts are drawn, and numbers agree."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.report import Report
from engine.report.numbers import size
from tests.report.browser import Browser, missing
from tests.report.real_models import REAL

ALWAYS = {
    *("memory-by-tile", "memory-map", "memory-histogram", "live-bytes", "live-tensors"),
    *("phases", "costliest", "exchanges", "host", "scaling"),
}
USUAL = ("lstm", 1400, "dark")
CASES = [(name, width, theme) for name in REAL for width in (375, 1400, 2560) for theme in ("light", "dark")]
PHASES = ("compute", "exchange", "sync")
EMPTY = """
const marks = "[class*=role-mark] path, [class*=role-mark] rect, [class*=role-mark] text";
const boxes = figure => [...figure.querySelectorAll(marks)].map(each => each.getBoundingClientRect());
const figures = [...document.querySelectorAll("section.shown figure")];
return figures.filter(each => !boxes(each).some(box => box.width > 2 && box.height > 2)).map(each => each.dataset.chart)
"""
"""Charts in the visible section in which nothing is drawn."""
ALIKE = """
const axes = [...document.querySelectorAll("section.shown figure .role-axis-label")];
const repeated = axis => { const all = [...axis.querySelectorAll("text")].map(e => e.textContent).filter(Boolean);
  return all.filter((each, at) => all.indexOf(each) !== at && each.includes("…")); };
return axes.flatMap(repeated)
"""
"""Labels of axes that are only alike because they are cut off."""
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")]


@cache
def report_of(name: str) -> Report:
    return REAL[name]()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real")


@pytest.mark.parametrize(
    ("name", "width", "theme"),
    [case if case == USUAL else pytest.param(*case, marks=pytest.mark.explore) for case in CASES],
)
def test_all_charts_are_drawn_and_their_numbers_are_the_reports(
    browser: Browser, folder: Path, name: str, width: int, theme: str
) -> None:
    data = report_of(name).data
    page = folder / f"{name}.html"
    if not page.exists():
        page.write_text(report_of(name).html(), encoding="utf-8")
    browser.open(page, "verdict", width, theme)
    charts = set()
    for section in browser.sections():
        browser.go(section)
        assert browser.cut() == [], section
        assert browser.run(EMPTY) == [], section
        charts |= set(
            browser.run("return [...document.querySelectorAll('section.shown figure')].map(e => e.dataset.chart)")
        )
    assert charts == ALWAYS | ({"pipeline", "pipeline-bytes"} if data["pipeline"] else set())
    assert not browser.complaints()
    of_memory(browser, data)
    of_the_trace(browser, data)
    of_operations(browser, data)
    if data["pipeline"]:
        of_the_pipeline(browser, data)


def of_memory(browser: Browser, data: dict[str, Any]) -> None:
    """Checks the tips of tiles and steps, and the list of live arrays at a step that is clicked."""
    tiles, live = data["tiles"], data["liveness"]["live_bytes"]
    browser.go("memory")
    rows = -(-len(tiles) // 64)
    for tile in (3, 700, len(tiles) - 1):
        told = browser.hover("memory-map", (tile % 64 + 0.5) / 64, (tile // 64 + 0.5) / rows)
        assert told == f"tile {tile:,}; bytes at its peak {tiles[tile]['peak_bytes']:,}"
    told = browser.hover("memory-by-tile", 0.5, 0.97)
    category, tile, size = re.fullmatch(r"category (.+); from tile ([\d,]+); bytes ([\d,]+)", told).groups()  # type: ignore[union-attr]
    drawn = data["memory"]["categories"][category]
    first = int(tile.replace(",", ""))
    assert int(size.replace(",", "")) in drawn[first : first + 16]
    browser.go("liveness")
    steps = data["supersteps"] or data["operations"]
    for step in (0, data["memory"]["peak_at"], len(live) - 1):
        told = browser.hover("live-bytes", (step + 0.5) / len(live), 0.97)
        assert f"compute set {step:,}; operation {steps[step]['name']}; " in told and f"{live[step]:,}" in told
        browser.wait(f"document.querySelector('#alive-title').textContent.includes('compute set {step:,},')")


def of_the_trace(browser: Browser, data: dict[str, Any]) -> None:
    """A search over all names finds what the report has."""
    browser.go("trace")
    name = max(data["supersteps"] or data["operations"], key=lambda row: row["cycles"])["name"]
    browser.run("const find = document.querySelector('#find'); find.value = arguments[0];"
                "find.dispatchEvent(new Event('input'))", name)  # fmt: skip
    words, rows = name.lower().split(), data["supersteps"] or data["operations"]
    texts = [(row, f"{row['name']} {row['layer']} {row['source']}".lower()) for row in rows]
    cycles = [row["cycles"] for row, text in texts if all(word in text for word in words)]
    assert browser.text("#found") == f"{len(cycles):,} compute sets, {sum(cycles):,} cycles"


def of_operations(browser: Browser, data: dict[str, Any]) -> None:
    """The costliest operation's bars, and the rows that a click on it shows."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(PHASES, 0))
    for row in data["operations"]:
        for phase in PHASES:
            sums[row["name"]][phase] += row[phase]
    ordered = sorted(sums, key=lambda name: (-sum(sums[name].values()), name))
    browser.go("operations")
    bars = min(15, len(ordered))
    for place in (0, bars - 1):
        told = browser.hover("costliest", 0.02, (place + 0.5) / bars)
        assert told == f"operation {ordered[place]}; phase compute; cycles {sums[ordered[place]]['compute']:,}"
    browser.click("costliest", 0.02, 0.5 / bars)
    browser.wait(f"document.querySelector('#filter').value === '\"{ordered[0]}\"'")
    assert browser.text("#shown").endswith(f"take {sum(sums[ordered[0]].values()):,} cycles")
    for section in ("operations", "exchange", "liveness"):
        browser.go(section)
        # Several tensors may have equal names, so labels may be alike there.
        assert section == "liveness" or browser.run(ALIKE) == [], section


def of_the_pipeline(browser: Browser, data: dict[str, Any]) -> None:
    """A row of the schedule, and the bytes of each IPU when it is chosen."""
    pipeline = data["pipeline"]
    browser.go("pipeline")
    row = pipeline["rows"][0]
    told = browser.hover("pipeline", (row["begin"] + row["cycles"] / 2) / pipeline["cycles"], (row["ipu"] + 0.5) / 4)
    assert f"from cycle {row['begin']:,}; to cycle {row['begin'] + row['cycles']:,}" in told
    for each in data["by_ipu"]:
        browser.choose_ipu(each["ipu"])
        browser.go("memory")
        told = browser.hover("memory-map", 0.5 / 64, 0.5 / 23)
        assert told == f"tile 0; bytes at its peak {each['tiles'][0]['peak_bytes']:,}"
        of_one_ipu(browser, each)


def of_one_ipu(browser: Browser, shown: dict[str, Any]) -> None:
    """Asserts that leads, categories and operations are those of the IPU that is chosen."""
    of_weights = sum(shown["memory"]["categories"]["weights"])
    begin = f"IPU {shown['ipu']}: "
    assert browser.text("#memory .lead").startswith(begin)
    assert browser.text("#memory .lead").endswith(f"the fullest holds {size(shown['memory']['peak_fullest'])}.")
    assert float(browser.text("#categories tr:nth-child(2) td").split()[0]) == float(size(of_weights).split()[0])
    browser.go("liveness")
    assert browser.text("#liveness .lead").startswith(begin)
    browser.go("trace")
    count = len(shown["supersteps"])
    assert f"Above IPU {shown['ipu']}, over the whole step" in browser.text("#trace .lead")
    assert f" {count} compute sets" in browser.text("#trace .lead")
    browser.go("operations")
    browser.run("const f = document.querySelector('#filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
    assert f"of {count} compute sets of this IPU; the {count} found" in browser.text("#shown")
