"""Pages in a real browser: nothing is cut at any width, tips agree with the report, numbers agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.report import Report, report_on
from engine.report.charts.trace import whole_step
from tests.report.browser import Browser, missing
from tests.report.samples import report, too_large
from tests.report.test_advice import pipelined

PHONE, DESKTOP = 375, 1400
NAMES = ("fits", "fails", "pipeline")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")]


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {"fits": report(), "fails": too_large(), "pipeline": report_on(pipelined(), name="pipeline")}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, reports: dict[str, Report]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, made in reports.items():
        (folder / f"{name}.html").write_text(made.html(), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in reports}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NAMES)
# A desktop's width is tested by default in test_real_models.py.
@pytest.mark.parametrize("width", [PHONE, 700, pytest.param(DESKTOP, marks=pytest.mark.explore)])
def test_nothing_is_cut(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    browser.open(pages[name], "verdict", width)
    for section in browser.sections():
        browser.go(section)
        # Between phone and desktop wide tables scroll inside their frames.
        assert browser.cut(".scroll *, .scroll" if width == 700 else "") == [], section
    assert not browser.complaints()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NAMES)
def test_tips_have_no_gaps(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """The mouse goes over each chart: tips never say undefined, null or NaN, and most charts have some."""
    browser.open(pages[name], "verdict")
    silent = []
    for section in browser.sections():
        browser.go(section)
        charts = browser.run(
            "return [...document.querySelectorAll('section.shown figure')].map(each => each.dataset.chart)"
        )
        for chart in charts:
            places = [(across, down) for across in (0.03, 0.3, 0.9) for down in (0.05, 0.28, 0.5, 0.985)]
            told = browser.tips(chart, places)
            assert not any(re.search(r"undefined|null|NaN", each) for each in told), (chart, told)
            silent += [] if any(told) else [chart]
    # The marks of these charts are thin: a little memory on each tile, points of a line, short transfers.
    assert set(silent) <= {"memory-by-tile", "memory-histogram", "pipeline-bytes", "scaling", "host"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_tip_of_liveness_names_operation_and_bytes(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report], name: str, width: int
) -> None:
    data = reports[name].data
    live, steps = data["liveness"]["live_bytes"], data["supersteps"] or data["operations"]
    browser.open(pages[name], "liveness", width)
    for step in {0, len(live) // 2, len(live) - 1}:
        told = browser.hover("live-bytes", (step + 0.5) / len(live), 0.5)
        wanted = f"compute set {step:,}; operation {steps[step]['name']}; not always live {live[step]:,}"
        assert " ".join(told.split()) == wanted
        browser.wait(f"document.querySelector('#alive-title').textContent.includes('compute set {step:,},')")
        alive = [t for t in data["liveness"]["tensors"] if t["always_live"] or t["first"] <= step <= t["last"]]
        assert browser.run("return document.querySelectorAll('#alive tbody tr').length") == min(40, len(alive))


def test_the_tip_of_memory_is_of_the_tile_under_the_mouse(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    data = reports["fails"].data
    browser.open(pages["fails"], "memory")
    for tile in (0, 3, 7):
        told = browser.hover("memory-by-tile", (tile + 0.5) / 8, 0.98)
        found = re.fullmatch(r"category (.+); from tile (\d+); bytes ([\d,]+)", told)
        assert found, told
        assert int(found[2]) == tile
        assert int(found[3].replace(",", "")) == data["memory"]["categories"][found[1]][tile]


def test_the_tip_of_a_pipeline_is_a_row_of_its_schedule(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    pipeline = reports["pipeline"].data["pipeline"]
    browser.open(pages["pipeline"], "pipeline")
    for row in (pipeline["rows"][0], pipeline["rows"][-1]):
        across = (row["begin"] + row["cycles"] / 2) / pipeline["cycles"]
        told = browser.hover("pipeline", across, (row["ipu"] + 0.5) / len(pipeline["ipus"]))
        assert told.startswith(f"kind {row['kind']}; stage {row['stage']}; ")
        assert f"from cycle {row['begin']:,}; to cycle {row['begin'] + row['cycles']:,}" in told


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_one_page_agree(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report], name: str
) -> None:
    data = reports[name].data
    browser.open(pages[name], "verdict")
    total = data["cycles"]["total"]
    shares = re.findall(r"([\d.]+) %", browser.text(".key"))[::2]
    assert sum(map(float, shares)) == pytest.approx(100, abs=1)
    assert browser.text(".chips .chosen").split("± ")[0].split()[-1] == f"{total:,}"
    browser.go("operations")
    work = sum(row["cycles"] for row in data["operations"])
    assert browser.text("#shown").endswith(f"found take {work:,} cycles")
    browser.go("exchange")
    lead = browser.text("#exchange .lead")
    exchanged = sum(row["exchange"] for row in data["operations"])
    assert f"take {exchanged:,} cycles" in lead
    assert float(re.findall(r"([\d.]+) %", lead)[0]) <= 100
    if data["pipeline"] is None:
        return
    browser.go("pipeline")
    ipus, rows = data["pipeline"]["ipus"], data["pipeline"]["rows"]
    before = max(row["begin"] + row["cycles"] for row in rows if row["kind"] != "update")
    busy = {each["ipu"]: sum(r["cycles"] for r in rows if r["ipu"] == each["ipu"]) for each in ipus}
    worked = sum(row["cycles"] for row in rows if row["kind"] != "update")
    waits = float(re.findall(r"wait for ([\d.]+) %", browser.text("#pipeline .lead"))[0])
    assert waits == pytest.approx(100 * (1 - worked / before / len(ipus)), abs=0.6)
    for each in ipus:
        assert f"{busy[each['ipu']]:,}" in browser.text(f"#pipeline tbody tr:nth-child({each['ipu'] + 1})")


def test_filters_sort_and_themes(browser: Browser, pages: dict[str, Path], reports: dict[str, Report]) -> None:
    rows = reports["fits"].data["operations"]
    browser.open(pages["fits"], "operations", theme="dark")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    browser.run(
        "const filter = document.querySelector('#filter'); filter.value = 'backward';"
        "filter.dispatchEvent(new Event('input'))"
    )
    matching = [row for row in rows if "backward" in row["name"]]
    assert f"the {len(matching)} found take {sum(row['cycles'] for row in matching):,} cycles" in browser.text("#shown")
    browser.run("document.querySelector('#table th[data-key=number]').click()")
    numbers = browser.run("return [...document.querySelectorAll('#table tbody td:first-child')].map(e => +e.innerText)")
    assert numbers == [row["number"] for row in matching]


def test_charts_are_drawn_again_where_a_phone_becomes_wide(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["fits"], "memory", PHONE)
    labels = "[...document.querySelectorAll('#memory .role-legend-label text')]"
    rows = f"new Set({labels}.map(each => Math.round(each.getBoundingClientRect().top))).size"
    assert browser.run(f"return {rows}") > 1
    browser.resize(DESKTOP)
    browser.wait(f"{rows} === 1")


def find_of(rows: list[dict[str, Any]], name: str) -> str:
    """The sentence that the page should have about the operations with one name."""
    found = [row for row in rows if row["name"] == name]
    return f"the {len(found)} found take {sum(row['cycles'] for row in found):,} cycles"


def test_advice_charts_and_tables_lead_to_the_operation(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    name, advised = next((n, a["operation"]) for n, r in reports.items() for a in r.data["advice"] if a["operation"])
    browser.open(pages[name], "verdict")
    browser.run("document.querySelector('[data-operation]').click()")
    browser.wait("document.querySelector('section.shown').id === 'operations'")
    assert browser.text("#shown").endswith(find_of(reports[name].data["operations"], advised))
    data = reports["fits"].data
    sums: dict[str, int] = {}
    for row in data["operations"]:
        sums[row["name"]] = sums.get(row["name"], 0) + row["cycles"]
    costliest = max(sums, key=sums.__getitem__)
    browser.open(pages["fits"], "operations")
    browser.click("costliest", 0.1, 0.5 / len(sums))
    browser.wait(f"document.querySelector('#filter').value === '\"{costliest}\"'")
    assert browser.text("#shown").endswith(find_of(data["operations"], costliest))
    browser.run("document.querySelector('#table tbody a').click()")
    browser.wait("document.querySelector('section.shown').id === 'liveness'")
    assert browser.text("#alive-title").endswith(costliest)


def test_the_legend_shows_one_category_alone(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["fails"], "memory")
    areas = "document.querySelectorAll('[data-chart=memory-by-tile] .mark-area path').length"
    assert browser.run(f"return {areas}") > 1
    entry = "[data-chart=memory-by-tile] .role-legend-entry .mark-symbol path"
    browser.run(f"document.querySelector('{entry}').scrollIntoView({{block: 'center'}})")
    browser.click_at(*browser.run(f"const box = document.querySelector('{entry}').getBoundingClientRect();"
                                  "return [box.x + box.width / 2, box.y + box.height / 2]"))  # fmt: skip
    browser.wait(f"{areas} === 1")


def test_the_map_has_the_bytes_of_each_tile(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    tiles = reports["fits"].data["tiles"]
    rows = -(-len(tiles) // 64)
    browser.open(pages["fits"], "memory", theme="dark")
    for tile in (0, 130, len(tiles) - 1):
        told = browser.hover("memory-map", (tile % 64 + 0.5) / 64, (tile // 64 + 0.5) / rows)
        assert told == f"tile {tile:,}; bytes at its peak {tiles[tile]['peak_bytes']:,}"


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [PHONE, DESKTOP, 2560])
def test_charts_of_each_ipu_and_all_micro_batches(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report], width: int
) -> None:
    data = reports["pipeline"].data
    browser.open(pages["pipeline"], "pipeline", width)
    numbers = browser.run(
        "const labels = document.querySelectorAll('[data-chart=pipeline] .mark-text.role-mark text');"
        "return [...labels].map(each => +each.textContent)"
    )
    drawn = [row["micro_batch"] for row in data["pipeline"]["rows"] if row["micro_batch"] is not None]
    assert sorted(numbers) == sorted(drawn)
    if width != PHONE:
        plot = "document.querySelector('[data-chart=pipeline] svg').getBoundingClientRect().width"
        assert browser.run(f"return {plot}") > 0.9 * width
    browser.go("liveness")
    for number, each in enumerate(data["by_ipu"]):
        browser.choose_ipu(number)
        browser.go("liveness")
        live, step = each["liveness"]["live_bytes"], len(each["supersteps"]) - 1
        told = browser.hover("live-bytes", (step + 0.5) / len(live), 0.5)
        name = each["supersteps"][step]["name"]
        assert told == f"compute set {step:,}; operation {name}; not always live {live[step]:,}"


@pytest.mark.parametrize("name", ["fits", "pipeline"])
def test_the_trace_lasts_for_the_whole_step(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report], name: str
) -> None:
    data = reports[name].data
    spans = whole_step(data)
    assert [begin for begin, *_ in spans] == [0, *(end for _, end, *_ in spans[:-1])]
    assert spans[-1][1] == data["cycles"]["total"]
    browser.open(pages[name], "trace")
    assert browser.hover("phases", 0.002, 0.5).startswith("phase host")
