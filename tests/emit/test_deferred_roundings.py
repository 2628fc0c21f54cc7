"""Results of f16 that only pass maxima and the like on their way to memory are rounded there, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.emit.codelet import emit_codelet
from engine.emit.deferred import deferred_roundings
from engine.ir import Module
from engine.ir.builder import Builder
from tests.engine.running import fast

EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
OTHERS = np.random.default_rng(0).permutation(EVERY_HALF.ravel()).reshape(256, 256)


def rectified(limit: float, twice: bool = False) -> Module:
    """The maximum of products and a constant, and with `twice` their sum with it, which reads rounded products."""
    b = Builder()
    x, y = (b.parameter("f16", EVERY_HALF.shape) for _ in range(2))
    product = b.multiply(x, y)
    result = b.elementwise("maximum", product, b.splat(limit, EVERY_HALF.shape, "f16"))
    return b.module(b.tuple(result, b.add(product, x)) if twice else result)


@pytest.mark.parametrize("limit", [0.0, -0.0, 6e-8, -1.0])
def test_same_bits_for_every_half(limit: float) -> None:
    with np.errstate(all="ignore"):
        products = EVERY_HALF * OTHERS
        expected = np.where(np.isnan(products) | (products > np.float16(limit)), products, np.float16(limit))
    (result,), _ = fast(rectified(limit), [EVERY_HALF, OTHERS])
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(result), nan)
    np.testing.assert_array_equal(result[~nan].view(np.uint16), expected[~nan].view(np.uint16))


@pytest.mark.parametrize(("module", "deferred"), [(rectified(0.0), 2), (rectified(-0.0), 1), (rectified(0.0, True), 2)])
def test_which_are_deferred(module: Module, deferred: int) -> None:
    (compute_set,) = build_program(module, ["variable"] * 2, {}).compute_sets
    nest = compute_set.work.vertex
    assert len(deferred_roundings(nest)) == deferred
    assert emit_codelet(nest, "name", 16).count("fptrunc") >= 1
