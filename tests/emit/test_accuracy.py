"""Functions of f32 are within 2.5 ULP of NumPy's in f64, remainders are exact, and special values follow IEEE."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.ir.builder import Builder
from tests.emit.cases import SPECIAL_FLOATS, one_operation
from tests.program.machine import machine_of

Function = Callable[..., np.ndarray]
COUNT = 5000
LARGEST, SMALLEST = np.finfo(np.float32).max, np.finfo(np.float32).tiny
SPECIAL = (*SPECIAL_FLOATS, 2.0, 3.0, -3.0, LARGEST, -LARGEST, SMALLEST, -SMALLEST, 2.0**24 + 2, -(2.0**24) - 2)
UNARY: dict[str, Function] = {
    "cbrt": np.cbrt,
    "cosine": np.cos,
    "exponential-minus-one": np.expm1,
    "log-plus-one": np.log1p,
    "sine": np.sin,
    "tan": np.tan,
}
BINARY: dict[str, Function] = {"atan2": np.arctan2, "power": np.power, "remainder": np.fmod}


def of_every_size(rng: np.random.Generator) -> np.ndarray:
    """Any bits but denormal numbers, and numbers around 0 and 1."""
    bits = rng.integers(0, 2**32, COUNT, np.uint32).view(np.float32)
    bits = np.where(np.isfinite(bits), bits, np.float32(1))
    normal = rng.normal(size=(3, COUNT)) * [[1e-3], [1], [100]]
    x = np.concatenate([bits, *normal, 1 + normal[0], np.rint(normal[2])]).astype(np.float32)
    return np.where(np.abs(x) < SMALLEST, np.float32(0), x)


def compare(opcode: str, exact: Function, *arrays: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        (result,) = machine_of(one_operation(opcode, list(arrays), ["f32"] * len(arrays)), list(arrays)).run()
        expected = exact(*(each.astype(np.float64) for each in arrays))
        rounded = expected.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(result[~finite], rounded[~finite])
    numbers = ~np.isnan(rounded)
    np.testing.assert_array_equal(np.signbit(result[numbers]), np.signbit(rounded[numbers]))
    unit = np.spacing(np.clip(np.abs(rounded[finite]), SMALLEST, LARGEST / 2)).astype(np.float64)
    distance = np.abs(result[finite] - expected[finite]) / unit
    worst = int(np.argmax(distance))
    seen = [float(each[finite][worst]) for each in arrays]
    assert distance[worst] <= (0 if opcode == "remainder" else 2.5), (seen, result[finite][worst], distance[worst])


@pytest.mark.parametrize("opcode", UNARY)
def test_unary(opcode: str) -> None:
    x = of_every_size(np.random.default_rng(1))
    compare(opcode, UNARY[opcode], np.concatenate([x, np.float32(SPECIAL)]))


@pytest.mark.parametrize("opcode", BINARY)
def test_binary(opcode: str) -> None:
    rng = np.random.default_rng(2)
    x, y = of_every_size(rng), rng.permutation(of_every_size(rng))
    special = (each.reshape(-1) for each in np.meshgrid(*[np.float32(SPECIAL)] * 2))
    compare(opcode, BINARY[opcode], *(np.concatenate(pair) for pair in zip((x, y), special, strict=True)))


@pytest.mark.parametrize("opcode", ["sine", "cosine", "tan"])
def test_angles_near_multiples_of_a_quarter(opcode: str) -> None:
    quarters = np.arange(-COUNT, COUNT) * (np.pi / 2)
    x = np.concatenate([quarters, quarters * 2.0**20, quarters * 2.0**45]).astype(np.float32)
    # The f32 with the least relative distance from a multiple of pi / 2.
    compare(opcode, UNARY[opcode], np.concatenate([x, np.float32([16367173 * 2.0**72, -16367173 * 2.0**72])]))


def test_powers_of_bases_near_one() -> None:
    rng = np.random.default_rng(3)
    x = (1 + rng.normal(size=COUNT) * 1e-4).astype(np.float32)
    compare("power", np.power, x, (rng.normal(size=COUNT) * 1e5).astype(np.float32))


def test_exponentials_of_negative_squares() -> None:
    x = np.concatenate([np.linspace(-9.3, 9.3, COUNT), SPECIAL_FLOATS, [1e-30, -1e30, 12.0]]).astype(np.float32)
    builder = Builder()
    parameter = builder.parameter("f32", x.shape)
    square = builder.multiply(parameter, parameter)
    builder.elementwise("exponential", builder.elementwise("negate", square))
    (result,) = machine_of(builder.module(), [x]).run()
    with np.errstate(all="ignore"):
        exact = np.exp(-(x * x).astype(np.float64))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(x))
    numbers = ~np.isnan(x)
    unit = np.spacing(np.maximum(exact.astype(np.float32), SMALLEST))[numbers]
    assert np.max(np.abs(result[numbers] - exact[numbers]) / unit) <= 1.5
