"""call, while, conditional and tuples."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import InternalError, UnsupportedOperation
from engine.evaluate import evaluate
from engine.ir import Computation, Shape, TupleShape
from engine.ir.builder import Builder
from tests.ops.running import run_module, same

STATE = TupleShape((Shape("s32"), Shape("f32", (2,))))


def scaled(factor: float) -> Computation:
    b = Builder(f"times_{factor}")
    x = b.parameter("f32", (2,))
    return b.build(b.multiply(x, b.splat(factor, (2,))))


def counting_loop() -> Builder:
    """while (n < limit) { n += 1; x *= 2 } with the loop's state (n, x)."""
    c = Builder("below")
    below = c.build(c.compare(c.get_tuple_element(c.parameter_of(STATE), 0), c.constant(5, "s32"), "LT"))
    s = Builder("step")
    state = s.parameter_of(STATE)
    count = s.add(s.get_tuple_element(state, 0), s.constant(1, "s32"))
    step = s.build(s.tuple(count, s.call(scaled(2.0), s.get_tuple_element(state, 1))))
    b = Builder()
    start = b.tuple(b.parameter("s32"), b.parameter("f32", (2,)))
    b.inferred("while", (start,), (step, below))
    return b


@pytest.mark.parametrize(("start", "doublings"), [(0, 5), (4, 1), (5, 0), (99, 0)])
def test_while_runs_until_its_condition_fails(start: int, doublings: int) -> None:
    x = np.array([1.5, -3], np.float32)
    count, result = run_module(counting_loop().module(), np.array(start, np.int32), x)
    same(count, np.int32(max(start, 5)))
    same(result, x * np.float32(2**doublings))


@pytest.mark.parametrize(("index", "factor"), [(0, 1.0), (1, 3.0), (2, -2.0), (7, -2.0), (-1, -2.0)])
def test_conditional_by_index_takes_the_last_when_out_of_range(index: int, factor: float) -> None:
    b = Builder()
    selector, x = b.parameter("s32"), b.parameter("f32", (2,))
    b.conditional(selector, [scaled(f) for f in (1.0, 3.0, -2.0)], [x, x, x])
    value = np.array([4, 5], np.float32)
    same(run_module(b.module(), np.array(index, np.int32), value)[0], value * np.float32(factor))


@pytest.mark.parametrize("chosen", [True, False])
def test_conditional_by_pred_takes_the_first_when_true(chosen: bool) -> None:
    b = Builder()
    selector, x = b.parameter("pred"), b.parameter("f32", (2,))
    b.conditional(selector, [scaled(3.0), scaled(5.0)], [x, x])
    (result,) = run_module(b.module(), np.array(chosen), np.ones(2, np.float32))
    same(result, np.full(2, 3 if chosen else 5, np.float32))


def test_nested_tuples_are_flattened_in_results() -> None:
    b = Builder()
    x = b.parameter("f32")
    b.tuple(x, b.tuple(b.add(x, x), b.tuple()))
    assert [float(r) for r in run_module(b.module(), np.float32(3))] == [3.0, 6.0]


def test_unknown_operation_is_refused_by_name() -> None:
    b = Builder()
    b.instruction("custom-call", Shape("f32"), custom_call_target="mystery")
    with pytest.raises(UnsupportedOperation, match="mystery"):
        evaluate(b.module(), [])


def test_wrong_arguments_are_internal_errors() -> None:
    b = Builder()
    b.parameter("f32", (2,))
    with pytest.raises(InternalError, match="Expected 1 arguments"):
        evaluate(b.module(), [])
    with pytest.raises(InternalError, match=r"Expected f32\[2\]"):
        evaluate(b.module(), [np.zeros(3, np.float32)])
