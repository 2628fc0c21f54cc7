"""Divisions by square roots: which of them let an estimate do, and how accurate the estimates are."""

import numpy as np
import pytest

from engine.ir import Module
from engine.ir.builder import Builder
from engine.passes.reciprocal_square_roots import reciprocal_square_roots
from tests.engine.running import fast

SPECIAL = np.array(
    [0.0, -0.0, 1.0, 4.0, np.inf, -np.inf, np.nan, -1.0, 1.2e-38, 3e-30, 3.4e38, 1e-14, 1e-7], np.float32
)


def quotient(elements: int, constant: float | None, element_type: str = "f32", swapped: bool = False) -> Module:
    """x / (sqrt(v) + constant), or x / sqrt(v)."""
    b = Builder()
    x, v = (b.parameter(element_type, (elements,)) for _ in range(2))
    root = b.elementwise("sqrt", v)
    if constant is not None:
        terms = (root, b.splat(constant, (elements,), element_type))
        root = b.add(*(terms[::-1] if swapped else terms))
    return b.module(b.divide(x, root))


def accuracies(module: Module) -> list[tuple[str, int]]:
    after = reciprocal_square_roots(module)
    return [(i.opcode, i["result_accuracy"]) for i in after.entry.instructions if i.get("result_accuracy")]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_root_with_a_constant_may_be_estimated(swapped: bool) -> None:
    assert accuracies(quotient(8, 1e-7, swapped=swapped)) == [("sqrt", 2), ("divide", 2)]


def test_other_divisions_are_exact() -> None:
    assert accuracies(quotient(8, 1e-7, "f64")) == []
    for constant in (1e36, 0.0, 1e-20, -0.5):
        assert accuracies(quotient(8, constant)) == []
    opcodes = [i.opcode for i in reciprocal_square_roots(quotient(8, None)).entry.instructions]
    assert "rsqrt" in opcodes and "divide" not in opcodes


@pytest.mark.parametrize("constant", [1e-12, 1e-7, 1e-3, 1.0])
@pytest.mark.parametrize("elements", [1, 13, 16, 1000])
def test_estimates_are_within_five_ulp_of_the_exact_quotient(constant: float, elements: int) -> None:
    """The root and the quotient err by two ULP each, and each rounding between by half an ULP."""
    rng = np.random.default_rng(elements)
    x = (rng.normal(size=elements) * 10.0 ** rng.integers(-20, 20, elements)).astype(np.float32)
    v = (10.0 ** rng.uniform(-30, 30, elements)).astype(np.float32)
    with np.errstate(all="ignore"):
        root = np.sqrt(v.astype(np.float64))
        exact = x.astype(np.float64) / (root + np.float32(constant))
    (got,), _ = fast(quotient(elements, constant), [x, v])
    ulps = np.abs(got - exact) / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    ordinary = (np.abs(exact) > 1e-37) & (np.abs(exact) < 1e38)
    assert np.all(ulps[ordinary] <= 5)


@pytest.mark.parametrize("constant", [1e-12, 1e-7])
def test_estimates_of_special_values(constant: float) -> None:
    x, v = (each.reshape(-1).copy() for each in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        exact = x / (np.sqrt(v) + np.float32(constant))
    (got,), _ = fast(quotient(x.size, constant), [x, v])
    normal = ~(np.abs(exact) < 1.2e-38) | (exact == 0)
    np.testing.assert_allclose(got[normal], exact[normal], rtol=5e-7)
    assert np.array_equal(np.signbit(got[exact == 0]), np.signbit(exact[exact == 0]))
