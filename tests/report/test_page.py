"""The page is well-formed, complete without scripts, and needs nothing but itself."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from engine.report import Report
from engine.report.report import checked
from tests.report.samples import report, too_large

VOID = frozenset({"meta", "link", "input", "br", "img"})
LIMIT = 2_000_000


class Reader(HTMLParser):
    """Parser that notes mismatched tags, ids, references, and the text that a reader sees without scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("src", "href", "xlink:href", "action", "data", "srcset"):
                (self.links if (value or "").startswith("#") else self.references).append(value or "")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


@pytest.fixture(scope="module")
def html() -> str:
    return report().html()


@pytest.fixture(scope="module")
def read(html: str) -> Reader:
    return Reader(html)


def words(read: Reader) -> str:
    return " ".join(" ".join(read.text).split())


def test_it_is_well_formed(read: Reader) -> None:
    assert not read.wrong and not read.open
    assert len(read.ids) == len(set(read.ids))
    assert {"verdict", "memory", "liveness", "trace", "operations", "exchange", "host", "about"} <= set(read.ids)
    assert {link[1:] for link in read.links} <= set(read.ids)


def test_it_refers_to_nothing_outside(html: str, read: Reader) -> None:
    assert read.references == ["data:,"]
    assert "@import" not in html and not re.search(r"url\((?!#)", html)
    assert not re.search(r"(https?:)?//[a-z]", html.partition('id="packed"')[0])


def test_it_is_small(html: str) -> None:
    assert len(html.encode()) < LIMIT


def test_the_first_page_says_it_without_scripts(read: Reader) -> None:
    data, text = report().data, words(read)
    margin = data["memory"]["limit_bytes"] - data["memory"]["peak_fullest"]
    assert f"Fits on {data['target']['title']}" in text and f"{margin:,} bytes to spare" in text
    for each in data["targets"]:
        assert each["title"] in text and f"{each['margin_bytes']:,}" in text and f"{each['cycles']['total']:,}" in text
    for each in data["advice"]:
        assert each["title"] in text and each["text"] in text
    assert "60 % compute, 30 % exchange, 10 % sync" in text and "about 20 %" in text


def test_pictures_and_tables_are_there_without_scripts(html: str, read: Reader) -> None:
    assert html.count("<svg") >= 8
    text = words(read)
    assert "dense MatMul" in text and "dense MatMul (backward)" in text
    assert "poplibs" in text or "Graphcore" in text


def test_names_are_text(html: str) -> None:
    data = {**report().data, "name": "<script>alert(1)</script> & co"}
    changed = Report(data).html()
    assert "<script>alert" not in changed and "&lt;script&gt;alert(1)" in changed
    assert changed.count("<script") == html.count("<script")


def test_what_does_not_fit() -> None:
    read = Reader(too_large().html())
    text = words(read)
    assert not read.wrong and "Does not fit on Mk2 GC200" in text and "bytes too many" in text


def test_a_failure_is_quoted() -> None:
    text = words(Reader(Report({**too_large().data, "failure": "Expected at most so much."}).html()))
    assert "The program was not run. Expected at most so much." in text


def test_a_report_of_an_older_version_has_no_views_of_tiles() -> None:
    data = {key: value for key, value in report().data.items() if key not in ("work", "tree")}
    read = Reader(Report(data).html())
    assert checked(json.loads(json.dumps(data)), "a file") == data
    assert not read.wrong and "program" not in read.ids and "trace" in read.ids


def test_the_tree_is_there_without_scripts(read: Reader) -> None:
    text = words(read)
    for node in report().data["tree"]["children"]:
        count = node["end"] - node["begin"]
        assert f"{node['name']} {count} compute set{'s' if count > 1 else ''} {node['cycles']:,}, " in text


def test_light_dark_and_paper(html: str) -> None:
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "prefers-color-scheme: dark" in style and "@media print" in style
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    names = set(re.findall(r"(--[\w-]+):", dark.partition("\n}\n")[0]))
    assert names == set(re.findall(r"(--[\w-]+):", light))
    used = set(re.findall(r"var\((--[\w-]+)\)", html.partition('id="packed"')[0]))
    assert used <= names
