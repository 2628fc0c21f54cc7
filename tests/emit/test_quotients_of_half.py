"""Halves divided by one number give the bits that division gives, whatever the number is."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.emit.codelet import emit_codelet
from engine.ir import Module
from engine.ir.builder import Builder
from tests.engine.running import fast

EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
RANDOM = np.random.default_rng(0)
SCALES = [
    *(2.0**exponent for exponent in (-126, -100, -1, 0, 1, 15, 60, 96, 97, 120, 127)),
    *(1.2e-38, 3.0, 1 / 3, 1000.0, 65504.0, 1.9999999, 7e28, 8e28, 3e30, 3.4028235e38),
    *(RANDOM.normal(size=30) * 2.0 ** RANDOM.integers(-60, 120, 30)),
    *(0.0, -0.0, np.inf, -np.inf, np.nan, -2.5),
]


def module_of(kind: str) -> Module:
    b = Builder()
    half, divisor = b.parameter(kind, EVERY_HALF.shape), b.parameter("f32", ())
    return b.module(b.divide(b.convert(half, "f32"), b.broadcast(divisor, EVERY_HALF.shape, ())))


@pytest.mark.parametrize("scale", np.array(SCALES, np.float32))
def test_every_half(scale: np.float32) -> None:
    with np.errstate(all="ignore"):
        exact = EVERY_HALF.astype(np.float32) / scale
    # The engine takes numbers below the smallest normal one for zero.
    exact[np.abs(exact) < np.finfo(np.float32).tiny] *= 0
    (result,), _ = fast(module_of("f16"), [EVERY_HALF, np.asarray(scale)])
    nan = np.isnan(exact)
    assert np.array_equal(np.isnan(result), nan)
    assert np.array_equal(result[~nan].view(np.uint32), exact[~nan].view(np.uint32))


@pytest.mark.parametrize(("kind", "steps"), [("f16", True), ("bf16", False)])
def test_only_where_remainders_are_exact(kind: str, steps: bool) -> None:
    (compute_set,) = build_program(module_of(kind), ["variable"] * 2, {}).compute_sets
    assert ("@llvm.fma" in emit_codelet(compute_set.work.vertex, "name", 16).replace('"', "")) == steps
