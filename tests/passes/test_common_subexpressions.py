"""common_subexpressions: equal work is done once, different work is kept apart."""

import numpy as np
import pytest

from engine.ir import Shape
from engine.ir.builder import Builder
from engine.passes.common_subexpressions import common_subexpressions
from tests.passes.checking import assert_same_results


def results_of(b, *results):
    module = b.module(b.tuple(*results))
    after = common_subexpressions(module)
    if not {"rng", "custom-call"} & {i.opcode for i in module.entry.instructions}:
        assert_same_results(module, after)
    assert common_subexpressions(after) is after
    return after.results


@pytest.mark.parametrize(
    ("opcode", "merged"),
    [
        ("add", True),
        ("multiply", True),
        ("maximum", False),
        ("subtract", False),
        ("divide", False),
        ("power", False),
    ],
)
def test_order_of_operands(opcode, merged):
    b = Builder()
    x, y = b.parameter("f32", (3,)), b.parameter("f32", (3,))
    one, other, again = (b.elementwise(opcode, *pair) for pair in ((x, y), (y, x), (x, y)))
    found = results_of(b, one, other, again)
    assert found[0] is found[2]
    assert (found[0] is found[1]) == merged


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_order_of_operands_matters_to_zeros_only(opcode):
    b = Builder()
    x, y = b.parameter("s32", (3,)), b.parameter("s32", (3,))
    found = results_of(b, b.elementwise(opcode, x, y), b.elementwise(opcode, y, x))
    assert found[0] is found[1]


def test_chains_merge_from_the_operands_up():
    b = Builder()
    x = b.parameter("f32", (3,))
    chains = [b.multiply(b.elementwise("exponential", x), b.splat(2.0, (3,))) for _ in range(3)]
    assert len(set(results_of(b, *chains))) == 1


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [2.0, 1.0], False),
        ([0.0, 1.0], [-0.0, 1.0], False),
        ([np.nan], [np.nan], True),
        ([[1.0, 2.0]], [[1.0], [2.0]], False),
    ],
)
def test_literals_by_their_bits(one, other, merged):
    b = Builder()
    found = results_of(b, b.constant(one), b.constant(other))
    assert (found[0] is found[1]) == merged


def test_element_types_and_attributes_are_told_apart():
    b = Builder()
    x = b.parameter("f32", (3, 3))
    found = results_of(
        b,
        b.constant(1, "s32"), b.constant(1, "u32"), b.compare(x, x, "EQ"), b.compare(x, x, "NE"),
        b.reverse(x, (0,)), b.reverse(x, (1,)), b.iota("s32", (3, 3), 0), b.iota("s32", (3, 3), 1),
    )  # fmt: skip
    assert len(set(found)) == 8


def test_called_computations_by_their_structure():
    b = Builder()
    x, zero = b.parameter("f32", (3, 4)), b.constant(0.0)
    found = results_of(b, *[b.reduce(x, zero, (0,), opcode) for opcode in ("add", "add", "maximum")])
    assert found[0] is found[1] is not found[2]


def test_equal_bodies_become_one_object():
    b = Builder()
    x, y, zero = b.parameter("f32", (3, 4)), b.parameter("f32", (5, 4)), b.constant(0.0)
    one, other = results_of(b, b.reduce(x, zero, (0,)), b.reduce(y, zero, (0,)))
    assert one is not other and one.called[0] is other.called[0]


def test_hints_do_not_matter():
    b = Builder()
    x, y = b.parameter("f32", (3, 3)), b.parameter("f32", (3, 3))
    one, other = b.dot(x, y), b.dot(x, y)
    other.attributes["frontend_attributes"] = {"grad_x": "false"}
    found = results_of(b, one, other)
    assert found[0] is found[1]


@pytest.mark.parametrize("side_effect", [False, True])
def test_what_acts_outside_happens_as_often_as_written(side_effect):
    b = Builder()
    x = b.parameter("f32", (3,))
    calls = [
        b.instruction("custom-call", x.shape, (x,), custom_call_target="t", custom_call_has_side_effect=side_effect)
        for _ in range(2)
    ]
    found = results_of(b, *calls)
    assert (found[0] is found[1]) != side_effect


def test_random_numbers_are_drawn_each_time_even_inside_a_loop():
    def draw(b):
        return b.instruction("rng", Shape("f32", (3,)), (b.constant(0.0), b.constant(1.0)), distribution="RNG_UNIFORM")

    b = Builder()
    inner = Builder("inner")
    body = inner.build(draw(inner))
    found = results_of(b, draw(b), draw(b), b.call(body), b.call(body))
    assert len(set(found)) == 4
