"""Drawings of exchanges: a line for each pair of tiles, as wide as its bytes, and the bytes of each tile."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

from engine.debug import debug_run
from engine.debug.drawing import WIDEST, exchange_drawing
from engine.ir.builder import Builder


def test_lines_are_as_wide_as_their_bytes() -> None:
    moved = np.array([[0, 400, 0], [0, 0, 100], [200, 0, 0]])
    drawn = ElementTree.fromstring(exchange_drawing(moved, "a <b> & c"))
    assert drawn.attrib["aria-label"] == "a <b> & c"
    found = {line.findtext("title"): float(line.attrib["stroke-width"]) for line in drawn.iter("line")}
    assert found == {
        "tile 0 to tile 1: 400 bytes": WIDEST,
        "tile 1 to tile 2: 100 bytes": round(WIDEST / 4, 1),
        "tile 2 to tile 0: 200 bytes": WIDEST / 2,
    }
    texts = [text.text for text in drawn.iter("text")][1:]
    sent, received = texts[1:6:2], texts[7::2]
    assert texts[0::2] == ["0", "1", "2"] * 2
    assert (sent, received) == (["400 B", "100 B", "200 B"], ["200 B", "400 B", "100 B"])


def test_many_tiles_have_lines_alone() -> None:
    moved = np.zeros((100, 100), np.int64)
    moved[3, 99] = 5_000_000
    drawn = ElementTree.fromstring(exchange_drawing(moved, ""))
    assert len([*drawn.iter("line")]) == 1 and not [*drawn.iter("circle")]


def test_a_notebook_shows_the_exchanges_of_a_run() -> None:
    b = Builder("layer")
    x, w = b.parameter("f32", (64, 96)), b.parameter("f32", (96, 128))
    b.elementwise("tanh", b.dot(x, w))
    record = debug_run(b.module(), [np.ones((64, 96), np.float32), np.ones((96, 128), np.float32)], tiles=3).record
    shown = record._repr_html_()
    drawn = [each for each in record.supersteps if each.exchanged]
    assert shown.count("<svg") == len(drawn) > 0 and "bytes exchanged in the last step" in shown
    for each in drawn:
        told = re.findall(r"<title>tile (\d) to tile (\d): ([\d,]+) bytes", each._repr_html_())
        assert {(int(a), int(b)): int(n.replace(",", "")) for a, b, n in told} == {
            (int(a), int(b)): each.latest[a, b] for a, b in zip(*np.nonzero(each.latest), strict=True)
        }
