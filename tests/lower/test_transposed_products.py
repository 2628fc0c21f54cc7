"""Products that are written transposed, in the order in which their readers read."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir import DotDimensionNumbers, Module
from engine.ir.builder import Builder
from engine.program.program import Program
from tests.engine.running import check

HEADS = DotDimensionNumbers((3,), (1,), (0, 1), (0, 2))


def built(module: Module) -> Program:
    return build_program(module, ["variable"] * len(module.entry.parameters), {})


def attended(
    order: tuple[int, ...], sizes: tuple[int, int, int, int] = (3, 4, 9, 32), *, summed: bool = False
) -> Module:
    """Builds an attention's heads, [batch, heads, positions, size], transposed for their readers."""
    batch, heads, positions, size = sizes
    b = Builder()
    weights = b.parameter("f32", (batch, heads, positions, positions))
    values = b.parameter("f32", (batch, positions, heads, size))
    product = b.dot(weights, values, HEADS)
    turned = b.transpose(product, order)
    width = turned.array_shape.dimensions[-1]
    flat = b.reshape(turned, (product.array_shape.elements // max(width, 1), width))
    results = [b.dot(flat, b.parameter("f32", (width, 5))), b.transpose(product, order)]
    if summed:
        zero = b.constant(0.0)
        results += [b.reduce(product, zero, dimensions) for dimensions in [(0, 2), (0, 3), (1,), (0, 1, 2, 3)]]
    return b.module(b.tuple(*results))


@pytest.mark.sample(12)
@pytest.mark.parametrize("order", [p for p in permutations(range(4)) if p != (0, 1, 2, 3)])
def test_any_order(order: tuple[int, ...]) -> None:
    check(attended(order), tolerance=1e-4)
    check(attended(order, summed=True), tolerance=1e-4)


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 0, 1, 3), (0, 3, 1, 2), (3, 1, 0, 2)])
def test_no_copy_is_made(order: tuple[int, ...]) -> None:
    """Expects the product, its reader and the requested result, and a nest for each sum, or two if it is split."""
    names = [each.name for each in built(attended(order, (4, 4, 32, 32))).compute_sets]
    assert len([n for n in names if n.startswith("dot")]) == 2
    assert not [n for n in names if n.startswith("transpose")]


@pytest.mark.parametrize("sizes", [(1, 1, 5, 7), (2, 1, 1, 40), (1, 3, 8, 1), (5, 2, 1, 1), (2, 3, 0, 4)])
def test_dimensions_of_one_and_none(sizes: tuple[int, int, int, int]) -> None:
    for order in [(0, 2, 1, 3), (0, 3, 1, 2), (2, 1, 0, 3), (3, 2, 1, 0)]:
        check(attended(order, sizes, summed=True), tolerance=1e-4)


def test_several_free_dimensions_and_special_values() -> None:
    b = Builder()
    x, y = b.parameter("f32", (4, 3, 5, 8)), b.parameter("f32", (4, 8, 6, 7))
    product = b.dot(x, y, DotDimensionNumbers((3,), (1,), (0,), (0,)))  # [4, 3, 5, 6, 7]
    results = [b.transpose(product, order) for order in [(0, 3, 1, 2, 4)] * 2]
    module = b.module(b.tuple(*results, b.reduce(product, b.constant(0.0), (0, 1, 3))))
    check(module)
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(4, 3, 5, 8)).astype("f"), rng.normal(size=(4, 8, 6, 7)).astype("f")
    left[0, 0, 0, 0], right[1, 2, 3, 4], left[2, 1] = np.nan, np.inf, -0.0
    check(module, [left, right])


def test_readers_of_the_product_itself_have_it() -> None:
    b = Builder()
    x, y = b.parameter("f32", (3, 4, 6, 6)), b.parameter("f32", (3, 6, 4, 32))
    product = b.dot(x, y, HEADS)
    check(b.module(b.tuple(b.transpose(product, (0, 2, 1, 3)), b.elementwise("tanh", product))))
    b = Builder()
    x, y = b.parameter("f32", (3, 4, 6, 6)), b.parameter("f32", (3, 6, 4, 32))
    product = b.dot(x, y, HEADS)
    check(b.module(b.tuple(b.transpose(product, (0, 2, 1, 3)), b.transpose(product, (2, 0, 1, 3)), product)))
