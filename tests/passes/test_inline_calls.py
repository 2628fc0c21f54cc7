"""inline_calls and dead_code."""

import pytest

from engine.ir import Shape
from engine.ir.builder import Builder
from engine.passes.dead_code import dead_code
from engine.passes.inline_calls import inline_calls
from tests.passes.checking import alive, assert_same_results


def squares():
    b = Builder("squares")
    x, y = b.parameter("f32", (3,)), b.parameter("f32", (3,))
    return b.build(b.tuple(b.multiply(x, x), b.multiply(y, y)))


def nested(depth):
    computation = squares()
    for _ in range(depth):
        b = Builder("outer")
        x, y = b.parameter("f32", (3,)), b.parameter("f32", (3,))
        result = b.call(computation, y, x)
        computation = b.build(b.tuple(b.get_tuple_element(result, 0), b.get_tuple_element(result, 1)))
    return computation


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_calls_in_calls(depth):
    b = Builder()
    x, y = b.parameter("f32", (3,)), b.parameter("f32", (3,))
    first = b.call(nested(depth), x, y)
    second = b.call(nested(depth), b.get_tuple_element(first, 1), x)
    module = b.module(b.add(b.get_tuple_element(second, 0), b.get_tuple_element(first, 0)))
    after = dead_code(inline_calls(module))
    assert_same_results(module, after)
    assert set(alive(after)) == {"multiply", "add"}
    assert inline_calls(after) is after


def test_one_computation_called_twice_is_copied():
    b = Builder()
    x, y = b.parameter("f32", (3,)), b.parameter("f32", (3,))
    body = squares()
    module = b.module(b.tuple(*[b.get_tuple_element(b.call(body, *pair), 0) for pair in ((x, y), (y, x))]))
    after = inline_calls(module)
    assert_same_results(module, after)
    assert len(set(after.results)) == 2


@pytest.mark.parametrize(("choice", "taken"), [(True, 0), (False, 1)])
def test_conditional_with_a_constant_predicate(choice, taken):
    b = Builder()
    x, y = b.parameter("f32", (3,)), b.parameter("f32", (3,))
    branches = []
    for opcode in ("negate", "exponential"):
        inner = Builder(opcode)
        branches.append(inner.build(inner.elementwise(opcode, inner.parameter("f32", (3,)))))
    module = b.module(b.conditional(b.constant(choice, "pred"), branches, (x, y)))
    after = inline_calls(module)
    assert_same_results(module, after)
    assert after.entry.root.opcode == ("negate", "exponential")[taken]


@pytest.mark.parametrize(("index", "taken"), [(0, 0), (1, 1), (2, 2), (-1, 2), (7, 2)])
def test_conditional_with_a_constant_index(index, taken):
    b = Builder()
    x = b.parameter("f32", (3,))
    branches = []
    for opcode in ("negate", "exponential", "abs"):
        inner = Builder(opcode)
        branches.append(inner.build(inner.elementwise(opcode, inner.parameter("f32", (3,)))))
    module = b.module(b.conditional(b.constant(index, "s32"), branches, (x, x, x)))
    after = inline_calls(module)
    assert_same_results(module, after)
    assert after.entry.root.opcode == ("negate", "exponential", "abs")[taken]


def test_conditional_on_a_parameter_stays():
    b = Builder()
    x = b.parameter("f32", (3,))
    inner = Builder("branch")
    branch = inner.build(inner.elementwise("negate", inner.parameter("f32", (3,))))
    module = b.module(b.conditional(b.parameter("pred"), (branch, branch), (x, x)))
    assert inline_calls(module) is module


def test_call_that_returns_its_argument_as_the_root():
    inner = Builder("same")
    body = inner.build(inner.parameter("f32", (3,)))
    b = Builder()
    module = b.module(b.call(body, b.parameter("f32", (3,))), aliases={0: 0})
    after = inline_calls(module)
    assert_same_results(module, after)
    assert after.entry.root.opcode == "parameter"


def test_dead_code_keeps_parameters_and_side_effects():
    b = Builder()
    x, unused = b.parameter("f32", (3,)), b.parameter("f32", (3,))
    b.add(unused, unused)
    b.instruction("custom-call", Shape("f32"), (x,), custom_call_target="t", custom_call_has_side_effect=True)
    b.instruction("custom-call", Shape("f32"), (x,), custom_call_target="u", custom_call_has_side_effect=False)
    module = b.module(b.elementwise("negate", x))
    after = dead_code(module)
    kept = [i.get("custom_call_target", i.opcode) for i in after.entry.instructions]
    assert kept == ["parameter", "parameter", "t", "negate"]
    assert dead_code(after) is after


def test_dead_code_inside_called_computations():
    inner = Builder("branch")
    x = inner.parameter("f32", (3,))
    inner.elementwise("exponential", x)
    branch = inner.build(inner.elementwise("negate", x))
    b = Builder()
    y = b.parameter("f32", (3,))
    module = b.module(b.conditional(b.parameter("pred"), (branch, branch), (y, y)))
    after = dead_code(module)
    assert_same_results(module, after)
    assert [i.opcode for i in after.entry.root.called[0].instructions] == ["parameter", "negate"]
    assert after.entry.root.called[0] is after.entry.root.called[1]
