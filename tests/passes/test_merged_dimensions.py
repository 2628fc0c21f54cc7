"""Operations between a product and a loss work on merged dimensions: the same values in fewer fusions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Computation, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes.dead_code import dead_code
from engine.passes.merged_dimensions import merged_dimensions
from tests.engine.running import check

BATCH, POSITIONS, CLASSES = 3, 5, 37


def argmax_body() -> Computation:
    b = Builder("argmax")
    value, position, other, its = b.parameter("f32"), b.parameter("s32"), b.parameter("f32"), b.parameter("s32")
    keeps, ties = b.compare(value, other, "GE"), b.compare(value, other, "EQ")
    first = b.select(ties, b.elementwise("minimum", position, its), b.select(keeps, position, its))
    return b.build(b.tuple(b.select(keeps, value, other), first))


def loss_step(*, residual: bool = False, summed: tuple[int, ...] = (0, 1)) -> Module:
    """Softmax' sums, argmax, and sums of softmax of logits [batch, positions, classes] from a product and a bias.

    Parameters: rows, weights, bias, and with `residual` one of the logits' shape, which is added to them.
    """
    b, rows = Builder(), BATCH * POSITIONS
    split, merged = (BATCH, POSITIONS, CLASSES), (rows, CLASSES)
    given, weights = b.parameter("f32", (rows, 8)), b.parameter("f32", (8, CLASSES))
    bias, other = b.parameter("f32", (CLASSES,)), b.parameter("f32", split)
    logits = b.add(b.reshape(b.dot(given, weights), split), b.broadcast(bias, split, (2,)))
    if residual:
        logits = b.add(logits, other)
    pairs = TupleShape((Shape("f32", split[:2]), Shape("s32", split[:2])))
    operands = logits, b.iota("s32", split, 2), b.constant(-np.inf), b.constant(0, "s32")
    best = b.instruction("reduce", pairs, operands, (argmax_body(),), dimensions=(2,))
    powers = b.elementwise("exponential", b.reshape(logits, merged))
    sums = b.reduce(powers, b.constant(0.0), (1,))
    shares = b.reshape(b.divide(powers, b.broadcast(sums, merged, (0,))), split)
    return b.module(b.tuple(b.get_tuple_element(best, 1), sums, b.reduce(shares, b.constant(0.0), summed)))


def dimensions_of(module: Module) -> list[int]:
    """The ranks of the arrays that elementwise operations and reductions of the entry read."""
    kinds = ("add", "exponential", "divide", "reduce")
    return [i.operands[0].array_shape.rank for i in module.entry.instructions if i.opcode in kinds]


@pytest.mark.parametrize("options", [{}, {"residual": True}, {"summed": (0,)}])
def test_same_values(options: dict[str, Any]) -> None:
    module = loss_step(**options)
    merged = dead_code(merged_dimensions(module))
    verify(merged)
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=p.array_shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    arguments[0][2, 1], arguments[3][0, 1, 2] = np.nan, -np.inf
    with np.errstate(all="ignore"):
        for one, other in zip(evaluate(module, arguments), evaluate(merged, arguments), strict=True):
            np.testing.assert_array_equal(one, other)


def test_all_of_the_loss_is_on_merged_dimensions() -> None:
    assert set(dimensions_of(dead_code(merged_dimensions(loss_step())))) == {2}


def test_an_input_that_cannot_be_merged_for_nothing_keeps_its_region() -> None:
    found = dimensions_of(dead_code(merged_dimensions(loss_step(residual=True))))
    assert found.count(3) == 3  # two sums and the argmax


def test_a_reduction_of_some_merged_dimensions_stays() -> None:
    assert dimensions_of(dead_code(merged_dimensions(loss_step(summed=(0,))))).count(3) == 1


def test_engine_has_the_values_of_the_definitions() -> None:
    check(loss_step())
