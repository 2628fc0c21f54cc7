"""Complex numbers: elementwise functions, moves, reductions, dots, bodies of loops."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.errors import UnsupportedOperation
from engine.ir import Shape
from engine.ir.builder import Builder
from tests.engine.running import check, fast, random_array

UNARY = (
    "exponential exponential-minus-one log log-plus-one sqrt rsqrt cbrt sine cosine tan tanh logistic sign negate "
    "abs real imag"
).split()
TOLERANCES = {"c64": 1e-6, "c128": 1e-14}
SHAPES = ((), (1,), (5, 7), (33,), (3, 64))


@pytest.mark.sample(10)
@pytest.mark.parametrize("kind", ["c64", "c128"])
@pytest.mark.parametrize("opcode", UNARY)
def test_functions(opcode: str, kind: str) -> None:
    for dimensions in SHAPES:
        b = Builder()
        check(b.module(b.elementwise(opcode, b.parameter(kind, dimensions))), tolerance=TOLERANCES[kind])


@pytest.mark.parametrize("kind", ["c64", "c128"])
@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "divide", "power"])
def test_pairs(opcode: str, kind: str) -> None:
    for dimensions in SHAPES:
        b = Builder()
        x, y = b.parameter(kind, dimensions), b.parameter(kind, dimensions)
        check(b.module(b.elementwise(opcode, x, y)), tolerance=10 * TOLERANCES[kind])


def run_one(opcode: str, *values: complex) -> np.ndarray:
    b = Builder()
    operands = [b.parameter("c64", (1,)) for _ in values]
    ((result,), _) = fast(b.module(b.elementwise(opcode, *operands)), [np.array([v], np.complex64) for v in values])
    return np.asarray(result[0])


def test_large_and_small_numbers_do_not_overflow_on_the_way() -> None:
    assert run_one("abs", 3e30 + 4e30j) == np.float32(5e30)
    assert run_one("abs", complex(np.inf, np.nan)) == np.inf
    assert run_one("abs", 0j) == 0
    np.testing.assert_allclose(run_one("divide", 1e30 + 1e30j, 1e30 + 1e30j), 1)
    np.testing.assert_allclose(run_one("divide", 1e30j, 2e30), 0.5j)
    np.testing.assert_allclose(run_one("sqrt", 2e30j), 1e15 + 1e15j, rtol=1e-6)
    assert run_one("exponential", 100) == complex(np.inf, 0)


def test_values_on_the_axes() -> None:
    np.testing.assert_allclose(run_one("sqrt", -4), 2j)
    np.testing.assert_allclose(run_one("log", -1), np.pi * 1j, rtol=1e-6)
    assert run_one("sqrt", 0) == run_one("sign", 0) == run_one("power", 0, 2) == 0
    assert run_one("power", 0, 0) == 1
    np.testing.assert_allclose(run_one("tanh", 50), 1)
    np.testing.assert_allclose(run_one("log", 1 + 1e-6j).imag, 1e-6)


@pytest.mark.parametrize("kind", ["c64", "c128"])
@pytest.mark.parametrize("opcode", ["add", "multiply"])
def test_reductions(opcode: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    for dimensions, reduced in (
        ((50, 70), (0,)),
        ((50, 70), (1,)),
        ((5, 7), (0, 1)),
        ((3000, 9), (0,)),
        ((9000,), (0,)),
    ):
        b = Builder()
        module = b.module(b.reduce(b.parameter(kind, dimensions), b.constant(0.5 + 1j, kind), reduced, opcode))
        x = random_array(rng, Shape(kind, dimensions))
        check(module, [x / np.abs(x) if opcode == "multiply" else x], 100 * TOLERANCES[kind])


def test_moves_and_conversions() -> None:
    b = Builder()
    x, y, chosen = b.parameter("c64", (6, 5)), b.parameter("c64", (5, 3)), b.parameter("pred", (3, 6))
    turned = b.transpose(b.dot(x, y), (1, 0))
    mixed = b.select(chosen, turned, b.splat(1 + 2j, (3, 6), "c64"))
    swapped = b.elementwise("complex", b.elementwise("imag", mixed), b.elementwise("real", turned))
    results = b.tuple(
        b.add(mixed, b.iota("c64", (3, 6), 1)),
        b.compare(mixed, turned, "EQ"),
        b.compare(mixed, turned, "NE"),
        b.convert(mixed, "c128"),
        b.convert(b.elementwise("real", mixed), "c64"),
        swapped,
        b.reverse(b.slice(mixed, (1, 3), (0, 6, 2)), (0,)),
        b.concatenate([mixed, turned], 0),
        b.pad(mixed, b.constant(7j, "c64"), (1, 2), (0, 1, 1)),
    )
    check(b.module(results))


def test_reduction_with_a_body_of_several_operations() -> None:
    b = Builder("body")
    held, value = b.parameter("c64"), b.parameter("c64")
    lengths = [b.elementwise("abs", x) for x in (held, value)]
    body = b.build(b.select(b.compare(lengths[0], lengths[1], "GE"), held, value))
    b = Builder()
    x, initial = b.parameter("c64", (4, 19)), b.parameter("c64")
    check(b.module(b.inferred("reduce", (x, initial), (body,), dimensions=(1,))))


def test_operation_that_complex_numbers_do_not_have_is_refused() -> None:
    b = Builder()
    x = b.parameter("c64", (4,))
    with pytest.raises(UnsupportedOperation, match="floor"):
        build_program(b.module(b.elementwise("floor", x)), ["variable"], {})
