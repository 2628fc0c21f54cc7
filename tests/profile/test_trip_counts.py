"""Loops in the estimate: bodies times trip counts, if the program shows them."""

from __future__ import annotations

import pytest

from engine.compile import build_program
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.profile.loops import runs_of, unknown_loops
from engine.profile.program_estimate import estimate
from engine.profile.summary import summary
from engine.program.program import Program
from engine.target import target
from tests.program.loop_parts import below, loop, next_count, product
from tests.program.loops import nested, until_small

MK2 = target("ipu2")


def built(module: Module) -> Program:
    return build_program(module, ["feed"] * len(module.entry.parameters), {})


def products(iterations: int) -> Module:
    b = Builder("products")
    x, w = b.parameter("f32", (64, 64)), b.parameter("f32", (64, 64))
    _, y, _ = loop(
        *(b, [b.constant(0, "s32"), x, w], below(iterations)),
        lambda s, e: [next_count(s, e[0]), product(s, e[1], e[2]), e[2]],
    )
    return b.module(b.tuple(y))


def counting(start: int, growth: int, limit: int, direction: str) -> Module:
    """A counter that ends up in the result."""
    b = Builder("counting")
    (count,) = loop(
        *(b, [b.constant(start, "s32")]),
        lambda c, e: c.compare(e[0], c.constant(limit, "s32"), direction),
        lambda s, e: [s.add(e[0], s.constant(growth, "s32"))],
    )
    return b.module(b.tuple(count))


@pytest.mark.parametrize(
    ("start", "growth", "limit", "direction", "iterations"),
    [
        (0, 1, 10, "LT", 10), (0, 3, 10, "LT", 4), (0, 3, 9, "LE", 4), (10, -1, 0, "GT", 10), (10, -4, 0, "GE", 3),
        (5, 1, 5, "LT", 0), (5, 1, 5, "LE", 1), (7, 1, 5, "LT", 0), (0, -1, 5, "LT", None), (0, 0, 5, "LT", None),
        (0, 1, 5, "NE", None),
    ],
)  # fmt: skip
def test_trip_counts_of_counters(start: int, growth: int, limit: int, direction: str, iterations: int | None) -> None:
    (found,) = [r.iterations for r in built(counting(start, growth, limit, direction)).regions if r.repeats]
    assert found == iterations


def test_a_body_counts_as_often_as_it_runs() -> None:
    once, often = (estimate(built(products(iterations)), MK2) for iterations in (1, 100))
    assert often.unknown_loops == 0
    assert max(cost.runs for cost in often.costs) == 100  # the condition is not tested
    assert {cost.runs for cost in once.costs} == {1}
    for one, many in zip(once.costs, often.costs, strict=True):
        assert one.name == many.name
        assert many.cycles * one.runs == one.cycles * many.runs
    assert often.cycles > 50 * once.cycles


def test_what_is_inside_no_loop_runs_once() -> None:
    program = built(products(0))
    runs = runs_of(program)
    loops = [r for r in program.regions if r.repeats]
    for at, count in enumerate(runs):
        assert count == (1 if not any(r.begin <= at < r.end for r in loops) else count)
    assert 0 in runs


def test_a_loop_over_what_another_has_counted() -> None:
    """Gradients of loops are like this: the second loop has as many iterations as the first."""
    b = Builder("there_and_back")
    x = b.parameter("f32", (30,))
    count, y = loop(
        *(b, [b.constant(0, "s32"), x], below(7)),
        lambda s, e: [next_count(s, e[0]), s.elementwise("tanh", e[1])],
    )
    _, _, z = loop(
        *(b, [b.constant(0, "s32"), count, y]),
        lambda c, e: c.compare(e[0], e[1], "LT"),
        lambda s, e: [next_count(s, e[0]), e[1], s.elementwise("sine", e[2])],
    )
    assert [r.iterations for r in built(b.module(b.tuple(z))).regions if r.repeats] == [7, 7]


def test_loops_in_loops_multiply() -> None:
    b = Builder("nested")
    x = b.parameter("f32", (30,))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        _, _, made = loop(
            *(s, [s.constant(0, "s32"), e[1], e[2]]),
            lambda c, i: c.compare(i[0], i[1], "LT"),
            lambda t, i: [next_count(t, i[0]), i[1], t.elementwise("tanh", i[2])],
        )
        return [next_count(s, e[0]), e[1], made]

    _, _, y = loop(b, [b.constant(0, "s32"), b.constant(4, "s32"), x], below(5), body)
    program = built(b.module(b.tuple(y)))
    assert sorted(r.iterations or 0 for r in program.regions if r.repeats) == [4, 5]
    assert 20 in runs_of(program)


@pytest.mark.parametrize(("module", "unknown", "words"), [(until_small, 1, "1 loop."), (nested, 1, "1 loop.")])
def test_unknown_trip_counts_are_said(module: object, unknown: int, words: str) -> None:
    program = built(module())  # type: ignore[operator]
    assert unknown_loops(program) == unknown
    text = " ".join(summary(estimate(program, MK2)).split())
    assert f"Unknown trip count, counted once: {words}" in text


def test_known_trip_counts_need_no_words() -> None:
    assert "trip count" not in summary(estimate(built(products(3)), MK2))


def test_an_inner_loop_goes_on_with_what_the_inner_loop_left() -> None:
    """The inner loop starts where it last ended: its trip count is unknown, and the search for it ends."""
    b = Builder("going on")
    _, total = loop(
        *(b, [b.constant(0, "s32"), b.constant(0, "s32")], below(4)),
        lambda s, e: [
            next_count(s, e[0]),
            loop(
                s,
                [e[1]],
                lambda c, i: c.compare(i[0], c.constant(100, "s32"), "LT"),
                lambda t, i: [next_count(t, i[0])],
            )[0],
        ],
    )
    iterations = [r.iterations for r in built(b.module(b.tuple(total))).regions if r.repeats]
    assert sorted(iterations, key=str) == [4, None]
