"""The forward pass does not store results that the backward pass can compute from a product; values stay."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import compile_module, prepare
from engine.evaluate import evaluate
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.passes.recomputed import LEAST_ELEMENTS
from tests.engine.running import arguments_for, buffers

WIDTH = 256
LARGE, SMALL = LEAST_ELEMENTS // WIDTH, LEAST_ELEMENTS // WIDTH // 2


def activated(rows: int, activation: str, *, of_product: bool = True) -> Module:
    """act(x w + b) v, and act'(x w + b) times something that is known only after the second product."""
    b = Builder("activated")
    x, w, v = b.parameter("f32", (rows, 8)), b.parameter("f32", (8, WIDTH)), b.parameter("f32", (WIDTH, 8))
    bias = b.broadcast(b.parameter("f32", (WIDTH,)), (rows, WIDTH), (0 + 1,))
    given = b.dot(x, w) if of_product else b.parameter("f32", (rows, WIDTH))
    before = b.add(given, bias)
    if activation == "halves":
        inner = b.multiply(before, b.splat(0.5, (rows, WIDTH)))
        after = b.multiply(inner, b.elementwise("tanh", before))
    else:
        inner = b.elementwise(activation, before)
        after = b.multiply(inner, before)
    down = b.dot(after, v)
    up = b.dot(down, b.transpose(v, (1, 0)))
    return b.module(b.tuple(down, b.multiply(up, inner)))


def forward_results(module: Module) -> int:
    """Number of large arrays that the fusion writes and the second product reads."""
    prepared = prepare(module, verify=True)

    def is_large(instruction: Instruction) -> bool:
        return any(shape.dimensions[-1:] == (WIDTH,) and shape.rank == 2 for shape in instruction.tuple_shapes)

    fusions = [each for each in prepared.entry.instructions if each.opcode == "fusion" and is_large(each)]
    return len(fusions[0].tuple_shapes)


@pytest.mark.parametrize(
    ("rows", "activation", "of_product", "expected"),
    [
        (LARGE, "halves", True, 1),  # two operations on the product
        (LARGE, "exponential", True, 1),
        (LARGE, "tanh", True, 2),  # costs more than a read
        (SMALL, "halves", True, 2),  # stays in the cache
        (LARGE, "halves", False, 2),  # a parameter may be updated first
    ],
)
def test_results_of_the_forward_pass(rows: int, activation: str, of_product: bool, expected: int) -> None:
    assert forward_results(activated(rows, activation, of_product=of_product)) == expected


@pytest.mark.parametrize("activation", ["halves", "exponential", "tanh"])
def test_values(activation: str) -> None:
    module = activated(LARGE, activation)
    arguments = [0.1 * each for each in arguments_for(module)]
    results = compile_module(module, ["variable"] * len(arguments), {}, verify=True).run(1, [], buffers(arguments))
    for got, wanted in zip(results, evaluate(module, arguments), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
