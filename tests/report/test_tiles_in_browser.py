"""The views of tiles, the program and the trace in a real browser: what they say is the report's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.report import report_on
from engine.report.tile_map import bytes_on
from tests.report.browser import Browser, missing
from tests.report.samples import report
from tests.report.test_advice import pipelined

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")]
LEFT, TOP = 46, 24
"""Pixels of the picture of all tiles to the left of the lanes, and above them."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiles") / "fits.html"
    path.write_text(report().html(), encoding="utf-8")
    return path


def choose(browser: Browser, tile: int) -> None:
    browser.run(
        "const chosen = document.querySelector('#tile'); chosen.value = arguments[0];"
        "chosen.dispatchEvent(new Event('change'))",
        tile,
    )


def check_tile(browser: Browser, shown: dict[str, Any], tile: int) -> None:
    """Asserts that a tile's tables have its arrays at its peak, its vertices and what it receives."""
    arrays = bytes_on(shown, tile)
    told = browser.text("#tile-sum")
    assert f"{sum(size for _, size in arrays):,} bytes of arrays" in told
    assert f"= {shown['tiles'][tile]['peak_bytes']:,} bytes of {shown['memory']['limit_bytes']:,}." in told
    rows = browser.run(
        "return [...document.querySelectorAll('#tile-arrays tbody tr')].map(e => [...e.cells].map(c => c.innerText))"
    )
    assert sorted((row[0], row[4]) for row in rows) == sorted((t["name"], f"{size:,}") for t, size in arrays)
    steps = shown["supersteps"] or shown["operations"]
    mine = [(s, w) for s, w in zip(steps, shown["work"], strict=True) if tile in tiles_of(w["place"])]
    assert f"computes in {len(mine)} of {len(steps)} compute sets" in browser.text("#tile-work")
    numbers = browser.run("return [...document.querySelectorAll('#tile-vertices tbody a')].map(e => +e.textContent)")
    assert sorted(numbers) == [step["number"] for step, _ in mine]
    received = sum(step["runs"] * work["received_bytes"] for step, work in mine)
    assert (f"receives {received:,} bytes" if received else "receives nothing") in browser.text("#tile-received")


def tiles_of(place: list[int]) -> set[int]:
    origin, ring, start, tiles = place
    return {origin + (start + number) % ring for number in range(tiles)}


def test_a_click_on_the_map_shows_the_tile(browser: Browser, page: Path) -> None:
    data = report().data
    browser.open(page, "memory")
    check_tile(browser, data, data["memory"]["peak_tile"])
    browser.click("memory-map", (17 + 0.5) / 64, 0.5 / 23)
    browser.wait("document.querySelector('#tile').value === '17'")
    check_tile(browser, data, 17)
    for tile in (0, 1352, 1471):
        choose(browser, tile)
        check_tile(browser, data, tile)


def test_tiles_and_tree_are_of_the_chosen_ipu(browser: Browser, tmp_path: Path) -> None:
    made = report_on(pipelined(), name="pipeline")
    path = tmp_path / "pipeline.html"
    path.write_text(made.html(), encoding="utf-8")
    browser.open(path, "memory")
    for each in made.data["by_ipu"]:
        browser.choose_ipu(each["ipu"])
        browser.go("memory")
        choose(browser, 3)
        check_tile(browser, each, 3)
        browser.go("program")
        check_tree(browser, each)


def check_tree(browser: Browser, shown: dict[str, Any]) -> None:
    """Opens all nodes, and asserts that the tree has each compute set once, in order, with its cycles."""
    browser.run(
        "let closed; while ((closed = document.querySelectorAll('#tree details:not([open])')).length)"
        "for (const each of closed) { each.open = true; each.dispatchEvent(new Event('toggle')); }"
    )
    rows = shown["supersteps"] or shown["operations"]
    found = browser.run(
        "const text = (leaf, tag) => leaf.querySelector(tag).innerText;"
        "return [...document.querySelectorAll('#tree .leaf')].map(each => [text(each, 'span'), text(each, 'b')])"
    )
    whole = shown["tree"]["cycles"]
    assert [name for name, _ in found] == [f"{row['number']} {row['name']}" for row in rows]
    assert [told.split(", ")[0] for _, told in found] == [f"{row['cycles']:,}" for row in rows]
    assert sum(row["cycles"] for row in rows) == whole


def test_the_tree_has_every_compute_set(browser: Browser, page: Path) -> None:
    browser.open(page, "program")
    # A node that is open when the page is made gets its content in an event.
    browser.wait("document.querySelectorAll('#tree .leaf').length > 0")
    check_tree(browser, report().data)
    browser.run("document.querySelector('#tree .leaf a').click()")
    browser.wait("document.querySelector('section.shown').id === 'trace'")


def tip_at(browser: Browser, cycle: float, tile: float) -> str:
    """The text of the tip over the lanes, at a cycle and a tile of the whole step."""
    data = report().data
    browser.run(
        "const canvas = document.querySelector('#lanes'); canvas.scrollIntoView({block: 'center'});"
        "const box = canvas.getBoundingClientRect(), [across, down, left, top] = arguments;"
        "const x = box.x + left + across * (box.width - left), y = box.y + top + down * (box.height - top - 24);"
        "canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: y, bubbles: true}))",
        *(cycle / data["tree"]["cycles"], tile / 1472, LEFT, TOP),
    )
    tip = "document.querySelector('.tip')"
    return "; ".join(browser.run(f"return {tip}.hidden ? '' : {tip}.innerText").splitlines())


@pytest.mark.parametrize("width", [375, 1400])
def test_the_lanes_have_the_phase_of_each_tile(browser: Browser, page: Path, width: int) -> None:
    data = report().data
    browser.open(page, "trace", width)
    browser.wait("document.querySelector('#lanes').width > 300")
    begin = 0
    for row, work in zip(data["operations"], data["work"], strict=True):
        if not row["cycles"]:  # a part of another operation on a chip
            continue
        works = tiles_of(work["place"])
        some, other = min(works) + 0.5, next((t + 0.5 for t in range(1472) if t not in works), None)
        at = begin + row["sync"] / 2
        if row["sync"]:  # what reads its own tile alone needs none
            assert f"phase sync; compute set {row['number']}; operation {row['name']}" in tip_at(browser, at, some)
        at = begin + row["sync"] + row["exchange"] + row["compute"] / 2
        # A row of pixels has several tiles, so the middle of a range of tiles is tested.
        if len(works) > 20 and width > 375:
            told = tip_at(browser, at, some + 8)
            assert re.search(rf"phase compute; .*operation {re.escape(row['name'])}; cycles {row['compute']:,}", told)
        if other is not None and len(works) < 1400:
            assert "phase idle" in tip_at(browser, at, (max(works) + 20) if max(works) < 1440 else other + 8)
        begin += row["cycles"]
    assert begin == data["tree"]["cycles"]
    assert not browser.complaints()


def test_a_search_counts_and_leads_to_what_it_finds(browser: Browser, page: Path) -> None:
    rows = report().data["operations"]
    browser.open(page, "trace")
    browser.run(
        "const find = document.querySelector('#find'); find.value = 'matmul BACK';"
        "find.dispatchEvent(new Event('input'))"
    )
    found = [row for row in rows if "MatMul (backward)" in row["name"]]
    cycles = sum(row["cycles"] for row in found)
    assert browser.text("#found") == f"{len(found)} compute sets, {cycles:,} cycles"
    browser.run("document.querySelector('#next').click()")
    assert browser.text("#found") == f"1 of {len(found)}: {found[0]['name']}, {found[0]['cycles']:,} cycles"


def test_the_picture_is_of_the_colours_of_phases(browser: Browser, page: Path) -> None:
    """Pixels in the middle of a sync, a compute and idle tiles have these phases' colours, in both themes."""
    data, row = report().data, report().data["operations"][0]
    works = tiles_of(data["work"][0]["place"])
    # A row of pixels has several tiles, so the middle of a range of tiles is tested.
    some, other = middle(works), middle(set(range(1472)) - works)
    syncs, computes = row["sync"] / 2, row["cycles"] - row["compute"] / 2
    for theme, sync, compute, idle in (
        ("light", (140, 107, 177), (63, 111, 176), (227, 229, 232)),
        ("dark", (171, 143, 208), (111, 158, 219), (47, 53, 60)),
    ):
        browser.open(page, "trace", 1400, theme)
        browser.wait("document.querySelector('#lanes').width > 300")
        expected = ((syncs, some, sync), (syncs, other, sync), (computes, some, compute), (computes, other, idle))
        for at, tile, colour in expected:
            pixel = browser.run(
                "const canvas = document.querySelector('#lanes'), [across, down, left, top] = arguments;"
                "const x = left + across * (canvas.width - left), y = top + down * (canvas.height - top - 24);"
                "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done([..."
                "canvas.getContext('2d').getImageData(x, y, 1, 1).data]))))",
                *(at / data["tree"]["cycles"], tile / 1472, LEFT, TOP),
            )
            assert tuple(pixel) == (*colour, 255), (theme, at, tile)


def middle(tiles: set[int]) -> int:
    """The tile in the middle of the longest range of neighbours."""
    ends = [tile for tile in tiles if tile + 1 not in tiles]
    begins = [tile for tile in tiles if tile - 1 not in tiles]
    begin, end = max(zip(sorted(begins), sorted(ends), strict=True), key=lambda each: each[1] - each[0])
    return (begin + end) // 2
