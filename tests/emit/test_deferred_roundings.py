"""Results of f16 that only pass maxima and the like are rounded when stored, with the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.compile import build_program
from engine.emit import nest_emitter
from engine.emit.codelet import emit_codelet
from engine.emit.deferred import deferred_roundings
from engine.ir import Module
from engine.ir.builder import Builder
from tests.engine.running import fast

EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
OTHERS = np.random.default_rng(0).permutation(EVERY_HALF.ravel()).reshape(256, 256)


def rectified(limit: float, twice: bool = False, first: bool = False) -> Module:
    """The maximum of products and a constant, which may be the `first` operand.

    With `twice` it also returns their sum with the first factor, which reads rounded products.
    """
    b = Builder()
    x, y = (b.parameter("f16", EVERY_HALF.shape) for _ in range(2))
    product = b.multiply(x, y)
    operands = product, b.splat(limit, EVERY_HALF.shape, "f16")
    result = b.elementwise("maximum", *(operands[::-1] if first else operands))
    return b.module(b.tuple(result, b.add(product, x)) if twice else result)


def passed(opcode: str) -> Module:
    """Products through `abs`, `negate`, or a `select` between them and a factor."""
    b = Builder()
    x, y = (b.parameter("f16", EVERY_HALF.shape) for _ in range(2))
    product = b.multiply(x, y)
    if opcode == "select":
        return b.module(b.elementwise("select", b.compare(x, y, "GT"), product, y))
    return b.module(b.elementwise(opcode, product))


@pytest.mark.parametrize("limit", [0.0, -0.0, 6e-8, -1.0])
def test_same_bits_for_every_half(limit: float) -> None:
    with np.errstate(all="ignore"):
        products = EVERY_HALF * OTHERS
        expected = np.where(np.isnan(products) | (products > np.float16(limit)), products, np.float16(limit))
    (result,), _ = fast(rectified(limit), [EVERY_HALF, OTHERS])
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(result), nan)
    np.testing.assert_array_equal(result[~nan].view(np.uint16), expected[~nan].view(np.uint16))


@pytest.mark.parametrize(
    ("module", "deferred"),
    [
        (rectified(0.0), 2),
        (rectified(-0.0), 1),
        (rectified(0.0, True), 2),
        (rectified(0.0, first=True), 2),
        (passed("abs"), 2),
        (passed("negate"), 2),
        (passed("select"), 2),
    ],
)
def test_which_are_deferred(module: Module, deferred: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (compute_set, *_) = build_program(module, ["variable"] * len(module.entry.parameters), {}).compute_sets
    nest = compute_set.work.vertex
    assert len(deferred_roundings(nest)) == deferred
    assert not deferred_roundings(replace(nest, exceptions=("overflow",)))
    roundings = emit_codelet(nest, "name", 16).count("fptrunc")
    monkeypatch.setattr(nest_emitter, "deferred_roundings", lambda nest: frozenset())
    assert (roundings < emit_codelet(nest, "name", 16).count("fptrunc")) == (deferred > 1)


@pytest.mark.parametrize("opcode", ["abs", "negate", "select"])
def test_same_bits_of_what_passes_values(opcode: str) -> None:
    """Products that overflow also pass."""
    with np.errstate(all="ignore"):
        products = EVERY_HALF * OTHERS
    passing = {"abs": np.abs(products), "negate": -products, "select": np.where(EVERY_HALF > OTHERS, products, OTHERS)}
    expected = passing[opcode]
    (result,), _ = fast(passed(opcode), [EVERY_HALF, OTHERS])
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(result), nan)
    np.testing.assert_array_equal(result[~nan].view(np.uint16), expected[~nan].view(np.uint16))


def test_what_a_sum_reads_is_rounded_before() -> None:
    """Sums are computed in float32: products that nearly cancel show their rounding errors."""
    b = Builder()
    x, y = (b.parameter("f16", (64, 2)) for _ in range(2))
    kept = b.elementwise("maximum", b.multiply(x, y), b.splat(-8.0, (64, 2), "f16"))
    module = b.module(b.tuple(kept, b.reduce(kept, b.constant(0, "f16"), (1,))))
    random = np.random.default_rng(0)
    x, y = (random.uniform(1, 2, (64, 2)).astype(np.float16) for _ in range(2))
    x[:, 1], y[:, 1] = -x[:, 0], y[:, 0] + np.float16(2**-10)
    (compute_set, *_) = build_program(module, ["variable"] * 2, {}).compute_sets
    assert compute_set.work.vertex.reductions and not deferred_roundings(compute_set.work.vertex)
    (products, sums), _ = fast(module, [x, y])
    np.testing.assert_array_equal(products, x * y)
    exact = (x.astype(np.float32) * y).sum(1).astype(np.float16)
    expected = (x * y).astype(np.float32).sum(1).astype(np.float16)
    np.testing.assert_array_equal(sums, expected)
    assert (exact != expected).any()
