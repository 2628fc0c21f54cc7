"""Cost reports have none of the work that this processor alone needs: copies, exchanged operands, wider types."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.compile import build_program
from engine.ir import DotDimensionNumbers, Instruction, WindowDimension
from engine.ir.builder import Builder
from engine.profile.exchange import Layouts
from engine.profile.program_estimate import estimate
from engine.profile.superstep import product_of
from engine.program.program import Program
from engine.target import target
from tests.program.loop_parts import below, loop, next_count

MK2 = target("ipu2")


def scanned(kind: str) -> Program:
    """Cumulative sums of rows."""
    b, window = Builder("scanned"), (WindowDimension(1), WindowDimension(300, 1, 299, 0))
    made = b.reduce_window(b.parameter(kind, (60, 300)), b.constant(0.0, kind), window)
    return build_program(b.module(b.tuple(made)), ["feed"], {})


def pooled(kind: str) -> Program:
    """The gradient of a max pooling."""
    b, window = Builder("pooled"), (WindowDimension(1), *(WindowDimension(2, 2),) * 2, WindowDimension(1))
    operands = b.parameter(kind, (2, 16, 16, 8)), b.parameter(kind, (2, 8, 8, 8)), b.constant(0.0, kind)
    greater, total = Builder("greater"), Builder("total")
    compared = greater.compare(greater.parameter(kind, ()), greater.parameter(kind, ()), "GE")
    added = total.add(total.parameter(kind, ()), total.parameter(kind, ()))
    bodies = greater.build(compared), total.build(added)
    made = b.inferred("select-and-scatter", operands, bodies, window=window)
    return build_program(b.module(b.tuple(made)), ["feed", "feed"], {})


def factored(kind: str) -> Program:
    b, attributes = Builder("factored"), {"left_side": True, "lower": True, "unit_diagonal": False}
    x, y = b.parameter(kind, (4, 32, 32)), b.parameter(kind, (4, 32, 3))
    solved = b.inferred("triangular-solve", (x, y), **attributes, transpose_a="NO_TRANSPOSE")
    made = b.elementwise("cholesky", x, lower=True), solved
    return build_program(b.module(b.tuple(*made)), ["feed", "feed"], {})


@pytest.mark.parametrize("make", [scanned, pooled, factored])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_have_no_conversions_of_this_processor(make: Callable[[str], Program], kind: str) -> None:
    few, many = (estimate(make(each), MK2) for each in (kind, "f32"))
    assert [each.name for each in few.costs] == [each.name for each in many.costs]
    assert few.cycles <= many.cycles
    assert few.memory.peak_fullest <= many.memory.peak_fullest


def multiplied(first: int, second: int, numbers: DotDimensionNumbers) -> Program:
    """Products of `first` and of `second` rows by one weight, the second with these dimension numbers."""
    b = Builder("multiplied")
    x, y, w = b.parameter("f32", (first, 64)), b.parameter("f32", (second, 64)), b.parameter("f32", (64, 64))
    return build_program(b.module(b.tuple(b.dot(x, w), b.dot(y, w, numbers))), ["feed", "feed", "variable"], {})


@pytest.mark.parametrize("terms", [0, 1])
def test_a_weight_is_in_the_order_of_its_first_product(terms: int) -> None:
    """A backward product, over the weight's other dimension, rearranges it, in whatever order the host stores it."""
    program = multiplied(32, 48, DotDimensionNumbers((1,), (terms,)))
    layouts = Layouts(program.compute_sets)
    _, second = (product_of(each, layouts) for each in program.compute_sets if each.work_estimate.multiply_adds)
    assert second.transposed == ("b" if terms else "")
    forward, backward = (estimate(multiplied(32, 48, DotDimensionNumbers((1,), (n,))), MK2) for n in (0, 1))
    assert forward.cycles < backward.cycles


@pytest.mark.parametrize("terms", [0, 1])
def test_a_loop_reads_its_weight_as_a_step_does(terms: int) -> None:
    """A program has no copy of a weight whose transpose a loop multiplies by: this processor makes one by itself."""
    numbers = DotDimensionNumbers((1,), (terms,))
    b = Builder("recurrent")
    x, w = b.parameter("f32", (32, 256)), b.parameter("f32", (256, 256))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        return [next_count(s, e[0]), s.elementwise("tanh", s.dot(e[1], e[2], numbers)), e[2]]

    made = loop(b, [b.constant(0, "s32"), x, w], below(9), body)[1]
    found = estimate(build_program(b.module(b.tuple(made)), ["feed", "variable"], {}), MK2)
    (step,) = (cost for cost in found.costs if cost.operation.flop and cost.operation.unit == "AMP")
    b = Builder("once")
    alone = b.dot(b.parameter("f32", (32, 256)), b.parameter("f32", (256, 256)), numbers)
    (once, *_) = estimate(build_program(b.module(b.tuple(alone)), ["feed", "variable"], {}), MK2).costs
    assert step.cycles == 9 * once.cycles
    assert not any("transpose" in cost.name for cost in found.costs)
