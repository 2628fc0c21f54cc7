"""Results of fusions written into the concatenation that reads them."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from tests.engine.running import check


def copies(module: Module) -> int:
    """Number of operands of concatenations that are copied."""
    names = {i.name for i in module.entry.instructions if i.opcode == "concatenate"}
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    return sum(each.name.rsplit(".", 1)[0] in names for each in program.compute_sets)


def gates(shape: tuple[int, ...], dimension: int, count: int) -> Module:
    """Several results of one fusion, which are joined and read by a product."""
    builder = Builder()
    x, y = builder.parameter("f32", shape), builder.parameter("f32", shape)
    both = builder.add(x, y)
    parts: list[Instruction] = [
        builder.multiply(both, builder.elementwise("tanh", x)),
        builder.elementwise("exponential", builder.elementwise("negate", builder.multiply(both, both))),
        builder.subtract(builder.elementwise("logistic", both), y),
        builder.elementwise("maximum", both, x),
    ]
    joined = builder.concatenate(parts[:count], dimension)
    return builder.module(
        builder.tuple(builder.reverse(joined, (0,)), builder.elementwise("sqrt", builder.multiply(joined, joined)))
    )


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("shape", [(1, 16), (7, 16), (32, 64), (33, 130), (300, 100)])
def test_parts_of_a_fusion_are_not_copied(shape: tuple[int, ...], dimension: int) -> None:
    module = gates(shape, dimension, 4)
    assert copies(module) == 0
    check(module)


def test_of_three_dimensions_with_some_of_one_index() -> None:
    for shape, dimension in [((6, 1, 40), 1), ((6, 5, 40), 1), ((1, 9, 32), 2), ((6, 5, 40), 0)]:
        module = gates(shape, dimension, 3)
        assert copies(module) == 0
        check(module)


def test_short_parts_and_results_with_other_readers_are_copied() -> None:
    assert copies(gates((50, 7), 1, 2)) == 2
    check(gates((50, 7), 1, 2))
    builder = Builder()
    x = builder.parameter("f32", (20, 32))
    twice = builder.add(x, x)
    again = builder.concatenate([twice, builder.elementwise("negate", x), twice], 1)
    module = builder.module(builder.tuple(again, builder.reverse(twice, (0,))))
    assert copies(module) == 2
    check(module)


def test_with_sums_of_the_same_fusion_and_operands_of_other_kinds() -> None:
    builder = Builder()
    x, w = builder.parameter("f32", (64, 48)), builder.parameter("f32", (48, 32))
    high = builder.elementwise("exponential", x)
    total = builder.reduce(high, builder.constant(0.0), (1,))
    low = builder.elementwise("negate", x)
    joined = builder.concatenate([builder.dot(x, w), high, x, low], 1)
    module = builder.module(builder.tuple(builder.reverse(joined, (1,)), total))
    assert copies(module) == 2
    check(module)
    check(module, [np.full((64, 48), -0.0, np.float32), np.zeros((48, 32), np.float32)])
