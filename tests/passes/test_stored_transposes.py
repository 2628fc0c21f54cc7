"""Arrays that several loops would read across rows are transposed in memory once; others are read in place."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.compile import prepare
from engine.ir import Module
from engine.ir.builder import Builder
from tests.engine.running import check

SIZES = (5, 70, 49)


def module(permutation: tuple[int, ...], centres: bool) -> Module:
    """The product of a transposed array and another; with `centres`, the negated array less the product's row sums."""
    b = Builder()
    x = b.transpose(b.parameter("f32", SIZES), permutation)
    sizes = x.array_shape.dimensions
    y = b.parameter("f32", sizes)
    result = b.multiply(x, y)
    if centres:
        result = b.subtract(
            b.elementwise("negate", x), b.broadcast(b.reduce(result, b.constant(0.0), (2,)), sizes, (0, 1))
        )
    return b.module(b.tuple(result))


@pytest.mark.parametrize(
    ("permutation", "centres", "stored"), [((0, 2, 1), True, 1), ((0, 2, 1), False, 0), ((1, 0, 2), True, 0)]
)
def test_transposes_are_stored_for_several_readers(permutation: tuple[int, ...], centres: bool, stored: int) -> None:
    made = module(permutation, centres)
    found = Counter(i.opcode for i in prepare(made, verify=True).entry.instructions)
    assert (found["transpose"], found["fusion"]) == (stored, 1 + centres)
    check(made)
