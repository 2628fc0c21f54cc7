"""Masks of rectifiers' gradients are computed from arrays that normalisation reads anyway, with the same values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes import recompute_masks as masks
from engine.passes.recompute_masks import recompute_masks
from tests.engine.running import fast

ROWS, COLUMNS = 16, 16
SHAPE = (ROWS, COLUMNS)


def rectified(opcode: str, bound: float, *, reads_x: bool = True, kind: str = "f32") -> Module:
    """A rectifier of s * x + b, and the sum over rows of the gradient through it, times x if `reads_x`."""
    b = Builder("rectified")
    x, gradient = b.parameter(kind, SHAPE), b.parameter(kind, SHAPE)
    scale, offset = (b.broadcast(b.parameter(kind, (COLUMNS,)), SHAPE, (1,)) for _ in range(2))
    affine = b.add(b.multiply(x, scale), offset)
    low, high = (b.splat(bound, SHAPE, kind) for bound in (0.0, 6.0))
    y = b.elementwise("clamp", low, affine, high) if opcode == "clamp" else b.elementwise("maximum", affine, low)
    mask = b.compare(y, b.splat(bound, SHAPE, kind), "GT")
    if opcode == "clamp":
        mask = b.elementwise("and", mask, b.compare(y, high, "LT"))
    masked = b.select(mask, gradient, low)
    return b.module(b.tuple(y, b.reduce(b.multiply(x if reads_x else gradient, masked), b.constant(0.0, kind), (0,))))


def compared(module: Module) -> Counter[str]:
    """The opcodes from which the masks are computed."""
    return Counter(i.operands[0].opcode for i in module.entry.instructions if i.opcode == "compare")


CASES = [("maximum", 0.0, "add"), ("clamp", 0.0, "add"), ("maximum", 1.0, "maximum"), ("clamp", 6.0, "clamp")]


@pytest.mark.parametrize(("opcode", "bound", "expected"), CASES)
def test_only_masks_at_a_bound_are_recomputed(
    opcode: str, bound: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "LEAST_ELEMENTS", 1)
    module = rectified(opcode, bound)
    result = recompute_masks(module)
    verify(result)
    assert compared(result)[expected] >= 1
    assert compared(recompute_masks(rectified(opcode, bound, reads_x=False))) == compared(
        rectified(opcode, bound, reads_x=False)
    )


def test_masks_have_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "LEAST_ELEMENTS", 1)
    generator = np.random.default_rng(1)
    x = 4 * generator.standard_normal(SHAPE, dtype=np.float32)
    x[0, :8] = np.nan, np.inf, -np.inf, 0.0, -0.0, 6.0, 1e-45, -1e-45
    vectors = [np.ones(COLUMNS, np.float32), np.zeros(COLUMNS, np.float32)]
    arguments = [x, np.ones(SHAPE, np.float32), *vectors]
    for opcode in ("maximum", "clamp"):
        module = rectified(opcode, 0.0)
        assert compared(recompute_masks(module))["add"]
        expected, received = (evaluate(each, arguments) for each in (module, recompute_masks(module)))
        for a, b in zip(expected, received, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("opcode", ["maximum", "clamp"])
def test_the_engine_computes_the_same_bits(opcode: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product and an offset may nearly cancel, so both sums must be rounded in the same way."""
    dtype, generator = Shape(kind).dtype, np.random.default_rng(2)
    scale = generator.uniform(0.5, 2.0, COLUMNS).astype(dtype)
    offset = generator.normal(size=COLUMNS).astype(dtype)
    x, gradient = generator.normal(size=(2, *SHAPE)).astype(dtype)
    x[1:9] = -offset / scale
    x[5:9] = np.nextafter(x[5:9], dtype.type(9)) if kind != "bf16" else -((offset / scale) * dtype.type(1.01))
    x[0, :8] = np.nan, np.inf, -np.inf, 0.0, -0.0, 6.0, 1e-45, -1e-45
    found = []
    for least in (1, 1 << 40):
        monkeypatch.setattr(masks, "LEAST_ELEMENTS", least)
        module = rectified(opcode, 0.0, kind=kind)
        assert bool(compared(recompute_masks(module))["add"]) == (least == 1)
        found.append(fast(module, [x, gradient, scale, offset])[0])
    assert [each.tobytes() for each in found[0]] == [each.tobytes() for each in found[1]]
    assert np.any(found[0][0] == 0) and np.isfinite(found[0][1]).any()
