"""Infeeds and outfeeds on the engine agree with their definitions, with every ring and any number of workers."""

from __future__ import annotations

import sys
import threading
from types import FrameType

import numpy as np
import pytest

from engine.errors import ConfigurationError
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.lower.queues import SMALL_ROW
from engine.runtime.rings import InfeedRing, OutfeedRing, suggested_slots
from tests.engine.queue_programs import (
    TOKEN,
    Values,
    add_all,
    conditional,
    elements,
    exchange,
    host,
    infeed,
    made,
    outfeed,
    pack,
    repeat,
    rings,
    sums,
    zeros,
)

SCALAR, SMALL, EMPTY = Shape("f32"), Shape("f32", (3, 5)), Shape("f32", (0, 4))
LARGE, ODD, LONG = Shape("f32", (7, 1025)), Shape("f32", (1, 9001)), Shape("f32", (12345,))
ELEMENTS = {
    "scalar": [SCALAR],
    "small": [SMALL, SCALAR],
    "empty leaf": [SCALAR, EMPTY],
    "large": [LARGE],
    "several": [ODD, SCALAR, LONG, EMPTY, SMALL],
}


@pytest.fixture(params=[1, 2, 4])
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Fixes the number of workers, even for programs that one worker would run better."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", str(request.param))
    return int(request.param)


def agrees(module: Module, fed: dict[str, list[np.ndarray]], slots: int = 2, steps: int = 1) -> None:
    """Tiles and definitions hand out the same rows and leave the same variables."""
    expected, variables = exchange("definitions", module, fed, slots, steps)
    rows, values = exchange("tiles", module, fed, slots, steps)
    for name, leaves in expected.items():
        for leaf, wanted in zip(rows[name], leaves, strict=True):
            np.testing.assert_array_equal(leaf, wanted)
    for value, wanted in zip(values, variables, strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_the_definition_takes_and_hands_out_elements_in_order() -> None:
    module, fed = sums([SCALAR], iterations=5), [np.float32([1, 2, 3, 4, 5])]
    rows, variables = exchange("definitions", module, {"in": fed})
    np.testing.assert_array_equal(rows["out"][0], [1, 3, 6, 10, 15])
    np.testing.assert_array_equal(rows["out"][1], [1, 2, 3, 4, 5])
    assert variables[0] == 15


@pytest.mark.sample(15)
@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("shapes", ELEMENTS.values(), ids=ELEMENTS)
def test_a_loop_over_elements_of_all_sizes(workers: int, shapes: list[Shape], slots: int) -> None:
    agrees(sums(shapes, iterations=11), {"in": elements(shapes, 11)}, slots)


@pytest.mark.parametrize("shapes", ELEMENTS.values(), ids=ELEMENTS)
def test_steps_without_a_loop(workers: int, shapes: list[Shape]) -> None:
    agrees(sums(shapes, iterations=0, steps_in_loop=False), {"in": elements(shapes, 6)}, slots=3, steps=6)


@pytest.mark.parametrize("element_type", ["pred", "s8", "u8", "bf16", "f16", "s64", "f64", "c64"])
@pytest.mark.parametrize("rows", [3, SMALL_ROW])
def test_every_element_type_goes_through_unchanged(element_type: str, rows: int) -> None:
    shapes = [Shape(element_type, (rows, 3)), Shape(element_type)]
    builder = Builder()
    token = builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "in", shapes, state[0])
        return [outfeed(inner, "out", leaves[::-1], after)]

    module = builder.module(pack(builder, repeat(builder, 4, [token], body)), {0: 0})
    fed = elements(shapes, 4)
    rows_out, _ = exchange("tiles", module, {"in": fed})
    for leaf, sent in zip(rows_out["out"], fed[::-1], strict=True):
        np.testing.assert_array_equal(leaf, sent)


@pytest.mark.parametrize("in_loop", [False, True])
def test_large_elements_with_one_reader(workers: int, in_loop: bool) -> None:
    """Copying and reading may share a pass over the rows, which may also write variables."""
    shape = Shape("f32", (48, 1000))
    builder = Builder()
    total, token = builder.parameter_of(shape), builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "in", [shape], state[1])
        doubled = inner.multiply(leaves[0], inner.splat(2.0, shape.dimensions))
        return [inner.add(state[0], doubled), after]

    results = repeat(builder, 5, [total, token], body) if in_loop else body(builder, [total, token])
    agrees(
        builder.module(pack(builder, results), {0: 0, 1: 1}), {"in": elements([shape], 5)}, steps=1 if in_loop else 5
    )


def test_ten_thousand_iterations_with_an_outfeed_take_no_python_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand iterations call hardly more Python functions, in any thread, than ten do."""
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    few, many = (python_calls_of_iterations(iterations) for iterations in (10, 10_000))
    # The number of times that the caller looks for the end depends on how long workers take.
    assert many < few + 2000


def python_calls_of_iterations(iterations: int) -> int:
    """Number of Python functions called by a program of `iterations` iterations, each of which fills a row of an
    outfeed.
    """
    builder, calls = Builder(), 0
    total, token = builder.parameter("f32"), builder.parameter_of(TOKEN)

    def body(inner: Builder, state: Values) -> Values:
        new, number = inner.add(state[0], inner.constant(0.5)), inner.add(state[1], inner.constant(1, "s32"))
        return [new, number, outfeed(inner, "out", [number, new], state[2])]

    results = repeat(builder, iterations, [total, builder.constant(0, "s32"), token], body)
    module = builder.module(pack(builder, [results[0], results[2]]), {0: 0, 1: 1})
    executable, variables = made("tiles", module), zeros(module)
    bound = {"out": OutfeedRing(executable.queues["out"].shapes, suggested_slots(executable.queues["out"].shapes))}

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    with host(bound, {}) as drains:
        executable.run(1, [], variables, queues=bound)  # compiles
        threading.setprofile(note)  # for threads that begin later
        sys.setprofile(note)
        try:
            executable.run(1, [], variables, queues=bound)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        rows = drains["out"].rows()
    np.testing.assert_array_equal(rows[0], np.tile(np.arange(1, iterations + 1), 2))
    np.testing.assert_array_equal(rows[1], np.arange(1, 2 * iterations + 1) / 2)
    return calls


def nested(shape: Shape) -> Module:
    """An outer loop that takes an element, and an inner one that takes three of another queue."""
    builder = Builder()
    total, token = builder.parameter("f32"), builder.parameter_of(TOKEN)

    def inner_body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "inner", [shape], state[1])
        return [add_all(inner, state[0], leaves[0]), after]

    def outer_body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "outer", [SCALAR], state[1])
        new, after = repeat(inner, 3, [inner.multiply(state[0], leaves[0]), after], inner_body)
        return [new, outfeed(inner, "out", [new], after)]

    return builder.module(pack(builder, repeat(builder, 4, [total, token], outer_body)), {0: 0, 1: 1})


@pytest.mark.parametrize("shape", [SCALAR, LARGE], ids=["scalar", "large"])
def test_two_queues_in_nested_loops(workers: int, shape: Shape) -> None:
    agrees(nested(shape), {"outer": elements([SCALAR], 4, seed=1), "inner": elements([shape], 12)})


def branching(shape: Shape) -> Module:
    """Builds a loop that enqueues positive elements only, in a branch, and iterates as often as the first element
    says.
    """
    builder = Builder()
    total, token = builder.parameter("f32"), builder.parameter_of(TOKEN)
    first, token_after = infeed(builder, "turns", [Shape("s32")], token)

    def body(inner: Builder, state: Values) -> Values:
        leaves, after = infeed(inner, "in", [shape], state[1])
        new = add_all(inner, inner.constant(0.0), leaves[0])
        positive = inner.compare(new, inner.constant(0.0), "GT")
        values = [state[0], new, leaves[0], after]

        def yes(branch: Builder, v: Values) -> Values:
            return [branch.add(v[0], v[1]), outfeed(branch, "out", [v[2], v[1]], v[3])]

        return conditional(inner, positive, values, yes, lambda branch, v: [v[0], v[3]])

    results = repeat(builder, first[0], [total, token_after], body)
    return builder.module(pack(builder, results), {0: 0, 1: 1})


@pytest.mark.parametrize("shape", [SCALAR, SMALL, LARGE], ids=["scalar", "small", "large"])
def test_an_outfeed_in_a_branch_of_a_loop_whose_iterations_the_host_counts(workers: int, shape: Shape) -> None:
    fed = {"turns": [np.int32([9, 3])], "in": elements([shape], 12)}
    agrees(branching(shape), fed, slots=2, steps=2)


def test_several_outfeeds_of_one_queue_keep_their_order() -> None:
    builder = Builder()
    token = builder.parameter_of(TOKEN)
    for number in range(5):
        token = outfeed(builder, "out", [builder.constant(float(number))], token)
    module = builder.module(pack(builder, [token]), {0: 0})
    rows, _ = exchange("tiles", module, {}, slots=1, steps=3)
    np.testing.assert_array_equal(rows["out"][0], [0, 1, 2, 3, 4] * 3)


@pytest.mark.parametrize("kind", ["tiles", "definitions"])
def test_rows_that_a_call_does_not_take_are_there_for_the_next(kind: str) -> None:
    module = sums([SMALL], iterations=3)
    executable, variables = made(kind, module), zeros(module)
    bound, fed = rings(executable, 4), elements([SMALL], 12)
    infeed_ring = bound["in"]
    assert isinstance(infeed_ring, InfeedRing)
    with host(bound, {"in": fed}) as drains:
        for _ in range(4):
            executable.run(1, [], variables, queues=bound)
        rows = drains["out"].rows()
    np.testing.assert_array_equal(rows[1], fed[0])
    assert variables[0].read() == fed[0].sum()
    assert infeed_ring.available() == 0
    assert infeed_ring.space() == 4


@pytest.mark.parametrize("kind", ["tiles", "definitions"])
def test_results_of_all_steps_and_queues_go_together(kind: str) -> None:
    builder = Builder()
    total, token = builder.parameter("f32"), builder.parameter_of(TOKEN)
    leaves, after = infeed(builder, "in", [SMALL], token)
    new = add_all(builder, total, leaves[0])
    module = builder.module(pack(builder, [new, after, leaves[0]]), {0: 0, 1: 1})
    executable, fed = made(kind, module), elements([SMALL], 5)
    bound = rings(executable, 2)
    with host(bound, {"in": fed}):
        (taken,) = executable.run(5, [], zeros(module), "all", queues=bound)
    np.testing.assert_array_equal(taken, fed[0])


def test_rings_may_change_from_call_to_call() -> None:
    module = sums([SCALAR], iterations=2)
    executable, variables = made("tiles", module), zeros(module)
    for value in (1.0, 10.0, 100.0):
        bound = rings(executable, 2)
        with host(bound, {"in": [np.float32([value, value])]}) as drains:
            executable.run(1, [], variables, queues=bound)
            np.testing.assert_array_equal(drains["out"].rows()[1], [value, value])
    assert variables[0].read() == 222


@pytest.mark.parametrize("kind", ["tiles", "definitions"])
def test_an_executable_lists_its_queues_and_refuses_rings_that_do_not_fit(kind: str) -> None:
    executable = made(kind, sums([SMALL], iterations=2))
    assert {n: (q.direction, q.shapes) for n, q in executable.queues.items()} == {
        "in": ("infeed", (SMALL,)),
        "out": ("outfeed", (SCALAR, SMALL)),
    }
    right = rings(executable, 2)
    variables = zeros(sums([SMALL], iterations=2))
    for wrong, message in (
        ({"in": right["in"]}, "no ring; there are rings for: in"),
        ({**right, "in": InfeedRing([SCALAR], 2)}, r"infeed ring of \(f32\[3,5\]\).*Received: an infeed.*f32\[\]"),
        ({**right, "in": OutfeedRing([SMALL], 2)}, "Received: an outfeed ring"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            executable.run(1, [], variables, queues=wrong)


def test_a_queue_has_elements_of_one_kind() -> None:
    builder = Builder()
    token = builder.parameter_of(TOKEN)
    token = outfeed(builder, "out", [builder.constant(1.0)], token)
    token = outfeed(builder, "out", [builder.constant(1, "s32")], token)
    with pytest.raises(ConfigurationError, match=r"(?s)queue 'out'.*f32\[\].*Received.*s32\[\]"):
        made("tiles", builder.module(pack(builder, [token]), {0: 0}))
