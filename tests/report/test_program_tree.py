"""The tree of a program: each compute set once, cycles that add up, loops, branches, passes and layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.program.program import Region
from engine.report import report_on
from engine.report.program_tree import PARTS, program_tree
from tests.report.samples import report, too_large
from tests.report.test_advice import pipelined


def rows_of(*layers: str) -> list[dict[str, Any]]:
    """Rows in which compute set k takes 2^k cycles of compute, 3 of exchange and 5 of sync, in a layer."""
    rows = [{"layer": layer, "compute": 2**k, "exchange": 3, "sync": 5} for k, layer in enumerate(layers)]
    return [row | {"cycles": row["compute"] + row["exchange"] + row["sync"]} for row in rows]


def outline(node: dict[str, Any]) -> Any:
    """The node's name and compute sets, with its children."""
    return node["name"], node["begin"], node["end"], [outline(child) for child in node["children"]]


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children"]:
        yield from nodes(child)


def test_neighbours_of_one_layer_are_a_node() -> None:
    rows = rows_of("a", "b/c", "b/c", "b/d", "", "e", "e", "b/c")
    tree = program_tree(rows, [], [False] * len(rows))
    assert outline(tree) == ("step", 0, 8, [("b", 1, 4, [("b/c", 1, 3, [])]), ("e", 5, 7, [])])


def test_a_scope_around_one_scope_is_left_out() -> None:
    rows = rows_of("model/dense", "model/dense")
    assert outline(program_tree(rows, [], [False, False]))[3] == [("model/dense", 0, 2, [])]


def test_loops_in_loops_and_branches() -> None:
    """The outer loop's condition is compute set 1; the inner loop and its body consist of the same compute sets."""
    regions = [
        *(Region(3, 5, True, 7), Region(3, 5, repeats=False)),
        *(Region(5, 6, repeats=False), Region(6, 7, repeats=False)),
        *(Region(1, 7, True, None), Region(2, 7, repeats=False)),
    ]
    rows = rows_of(*"abcdefgh")
    tree = program_tree(rows, regions, [False] * 8)
    inner = ("loop, 7 iterations", 3, 5, [])
    branches = [("branch, counted as taken", 5, 6, []), ("branch, counted as taken", 6, 7, [])]
    assert outline(tree)[3] == [("loop, unknown number of iterations", 1, 7, [inner, *branches])]
    assert [node["iterations"] for node in nodes(tree) if node["kind"] == "loop"] == [None, 7]


def test_two_loops_over_the_same_compute_sets() -> None:
    pair = [Region(0, 2, True, 3), Region(0, 2, repeats=False)]
    tree = program_tree(rows_of("a", "a"), [*pair, *pair], [False, False])
    once = ("loop, 3 iterations", 0, 2, [("a", 0, 2, [])])
    assert outline(tree)[3] == [("loop, 3 iterations", 0, 2, [once])]


def test_passes_follow_from_gradients() -> None:
    rows = rows_of("a", "a", "b", "b", "a", "sgd")
    tree = program_tree(rows, [], [False, False, True, False, True, False])
    assert [(n["name"], n["begin"], n["end"]) for n in tree["children"]] == [
        *(("forward pass", 0, 2), ("backward pass", 2, 5), ("update", 5, 6))
    ]
    assert outline(program_tree(rows[:2], [], [False, False]))[3] == [("a", 0, 2, [])]


def test_passes_inside_the_loop_over_steps() -> None:
    regions = [Region(0, 3, True, 1), Region(0, 3, repeats=False)]
    tree = program_tree(rows_of("a", "a", "a"), regions, [False, True, True], in_pipeline=True)
    (loop,) = tree["children"]
    assert loop["name"] == "each micro-batch"
    assert [child["name"] for child in loop["children"]] == ["forward pass", "backward pass"]


@pytest.mark.parametrize("made", [report, too_large, lambda: report_on(pipelined(), name="pipeline")])
def test_cycles_are_those_of_the_compute_sets(made: Any) -> None:
    data = made().data
    for shown in (data, *data["by_ipu"]):
        rows = shown["supersteps"] or shown["operations"]
        for node in nodes(shown["tree"]):
            for part in PARTS:
                assert node[part] == sum(row[part] for row in rows[node["begin"] : node["end"]])
            inside = [(child["begin"], child["end"]) for child in node["children"]]
            assert all(a < b <= c for (a, b), (c, _) in zip(inside, inside[1:], strict=False))
            assert all(node["begin"] <= a and b <= node["end"] for a, b in inside)
    if data["pipeline"] is None:
        assert data["tree"]["cycles"] == data["cycles"]["total"] - data["cycles"]["host"]
