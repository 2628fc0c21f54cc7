"""dot and convolution with any dimension numbers, windows, groups and element types."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.ir import ConvolutionDimensionNumbers, DotDimensionNumbers, WindowDimension
from engine.ir.builder import Builder
from engine.ir.structured_shape_rules import window_count
from tests.engine.running import check
from tests.exploring import examples
from tests.opcodes.choices import Choices, whole_numbers

KINDS = ("f32", "f32", "f16", "bf16", "f64", "s32", "u8", "s64", "c64")


@settings(max_examples=examples(100, 15))
@given(st.data())
def test_dot(data: st.DataObject) -> None:
    """Batch, contracting and free dimensions in any order on both sides, some of size 0 or 1, read through moves."""
    c = Choices(data)
    roles = [role + str(n) for role in "bklr" for n in range(c.integer(0, 2))]
    sizes = {role: c.choose((1, 2, 3, 5, 8, 17, 0)) for role in roles}
    sides = []
    for mine in ("bkl", "bkr"):
        names = [r for r in roles if r[0] in mine]
        sides.append([names[k] for k in c.order(len(names))])
    batch, contracting = ([r for r in roles if r[0] == letter] for letter in "bk")
    batch, contracting = ([each[k] for k in c.order(len(each))] for each in (batch, contracting))
    numbers = DotDimensionNumbers(
        *(tuple(side.index(r) for r in contracting) for side in sides),
        *(tuple(side.index(r) for r in batch) for side in sides),
    )
    kind = c.choose(KINDS)
    b = Builder()
    operands = [b.parameter(kind, [sizes[r] for r in side]) for side in sides]
    seen = [b.reverse(x, c.subset(x.array_shape.rank)) if c.integer(0, 3) == 3 else x for x in operands]
    b.dot(seen[0], seen[1], numbers)
    rng = c.random()
    check(b.module(), [whole_numbers(rng, x.array_shape) for x in operands])


@settings(max_examples=examples(100, 15))
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    c = Choices(data)
    rank = c.integer(0, 3)
    groups = c.choose(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3)))
    features, outputs, batch = c.integer(1, 5), c.integer(1, 5) * max(groups), c.integer(1, 3) * groups[1]
    window, sizes = [], []
    for _ in range(rank):
        sizes.append(c.integer(1, 7))
        window.append(
            WindowDimension(
                *(c.integer(1, 3), c.integer(1, 3), c.integer(-2, 3), c.integer(-2, 3)),
                *(c.integer(1, 3), c.integer(1, 3), c.boolean()),
            )
        )
    assume(all(window_count(n, w) >= 0 for n, w in zip(sizes, window, strict=True)))
    image = [batch, features * groups[0], *sizes]
    kernel = [features, outputs, *(w.size for w in window)]
    orders = [c.order(rank + 2) for _ in range(3)]
    places = [[order.index(k) for k in range(rank + 2)] for order in orders]
    numbers = ConvolutionDimensionNumbers(*(part for a, b, *space in places for part in (a, b, tuple(space))))
    kind = c.choose(KINDS)
    b = Builder()
    x = b.parameter(kind, [image[k] for k in orders[0]])
    y = b.parameter(kind, [kernel[k] for k in orders[1]])
    b.convolution(x, y, tuple(window), numbers, *groups)
    rng = c.random()
    check(b.module(), [whole_numbers(rng, p.array_shape) for p in (x, y)])


def test_long_sums_of_halves_are_rounded_once() -> None:
    """Products have more terms than f16 can count: a sum kept in f16 would stop at 2048."""
    b = Builder()
    b.dot(b.parameter("f16", (2, 5000)), b.parameter("f16", (5000, 3)))
    check(b.module(), [np.ones((2, 5000), np.float16), np.ones((5000, 3), np.float16)])
