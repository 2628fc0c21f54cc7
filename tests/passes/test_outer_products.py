"""Dots of one term have the same bits as products, in every order of dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import DotDimensionNumbers, Module
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes.outer_products import outer_products
from tests.engine.running import fast

Sizes = tuple[int, ...]
EXTREMES = np.array([0.0, 1.5, -3e38, np.inf, np.nan, 1e-30], np.float32)
CASES = {
    "the gradient by the input of a layer with one output": ((7, 1), (1, 5), ((1,), (0,))),
    "transposed weights": ((7, 1), (5, 1), ((1,), (1,))),
    "nothing contracted": ((3,), (4, 2), ((), ())),
    "vectors of one element": ((1,), (1,), ((0,), (0,))),
    "batches in other places": ((4, 3, 1, 5), (2, 5, 1, 4), ((2,), (2,), (0, 3), (3, 1))),
    "several contracted dimensions": ((1, 6, 1), (1, 1, 2), ((0, 2), (1, 0))),
    "no elements": ((0, 1), (1, 5), ((1,), (0,))),
}


def product(left: Sizes, right: Sizes, numbers: tuple[Sizes, ...], kind: str = "f32") -> Module:
    b = Builder()
    made = b.dot(b.parameter(kind, left), b.parameter(kind, right), DotDimensionNumbers(*numbers))
    return b.module(made)


def opcodes(module: Module) -> set[str]:
    return {i.opcode for i in module.entry.instructions}


@pytest.mark.parametrize("case", CASES)
def test_products_are_those_of_the_dot(case: str) -> None:
    left, right, numbers = CASES[case]
    module = product(left, right, numbers)
    changed = outer_products(module)
    verify(changed)
    assert "dot" not in opcodes(changed)
    rng = np.random.default_rng(0)
    given = [rng.normal(size=each).astype(np.float32) for each in (left, right)]
    for each in given:
        each.reshape(-1)[:2] = rng.choice(EXTREMES, each.reshape(-1)[:2].shape)
    with np.errstate(all="ignore"):
        (expected,), (received,), ((run,), _) = evaluate(module, given), evaluate(changed, given), fast(module, given)
    np.testing.assert_array_equal(received, expected)
    np.testing.assert_array_equal(run, expected)


def test_signs_of_zeros_are_those_of_a_multiplication() -> None:
    module = outer_products(product((2, 1), (1, 2), ((1,), (0,))))
    (found,) = evaluate(module, [np.float32([[-0.0], [0.0]]), np.float32([[1.0, -1.0]])])
    np.testing.assert_array_equal(np.signbit(found), [[True, False], [False, True]])


@pytest.mark.parametrize(
    "module",
    [
        product((7, 2), (2, 5), ((1,), (0,))),
        product((7, 0), (0, 5), ((1,), (0,))),
        product((7, 1), (1, 5), ((1,), (0,)), "bf16"),
    ],
)
def test_other_dots_stay(module: Module) -> None:
    assert outer_products(module) is module
