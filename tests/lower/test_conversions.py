"""bitcast-convert between widths, and reduce-precision to any format."""

from __future__ import annotations

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from tests.engine.running import fast

CASES = [
    *(("f32", "u8", (3, 5)), ("u64", "u32", (7,)), ("u8", "f32", (3, 4)), ("u32", "u64", (5, 2)), ("u32", "s64", (2,))),
    *(("f64", "s16", (2, 3)), ("bf16", "u8", (4,)), ("s16", "f64", (2, 4)), ("f32", "u8", ()), ("s64", "f16", (0, 2))),
]


def same_bytes(module: Module, argument: np.ndarray) -> None:
    ((result,), _) = fast(module, [argument])
    (expected,) = evaluate(module, [argument])
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()


def random_bits(kind: str, dimensions: tuple[int, ...]) -> np.ndarray:
    raw = np.random.default_rng(0).integers(0, 256, Shape(kind, dimensions).bytes).astype(np.uint8)
    return raw.view(Shape(kind).dtype).reshape(dimensions)


@pytest.mark.parametrize(("source", "target", "dimensions"), CASES)
def test_bitcast_between_widths(source: str, target: str, dimensions: tuple[int, ...]) -> None:
    b = Builder()
    b.inferred("bitcast-convert", (b.parameter(source, dimensions),), hint=Shape(target, dimensions))
    same_bytes(b.module(), random_bits(source, dimensions))


def test_bitcast_of_what_was_moved() -> None:
    b = Builder()
    x = b.slice(b.transpose(b.parameter("u32", (2, 9)), (1, 0)), (1, 8, 2), (0, 2))
    b.inferred("bitcast-convert", (x,), hint=Shape("u64", (4, 2)))
    same_bytes(b.module(), random_bits("u32", (2, 9)))


FORMATS = [(5, 10), (8, 7), (4, 3), (5, 2), (2, 1), (8, 0), (11, 52), (8, 23), (6, 9), (1, 3), (3, 0)]


@pytest.mark.sample(15)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize(("exponent_bits", "mantissa_bits"), FORMATS)
def test_reduce_precision(kind: str, exponent_bits: int, mantissa_bits: int) -> None:
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=4000) * np.exp(rng.normal(size=4000) * 9)
    ties = np.ldexp(rng.integers(1, 2**8, 4000) + 0.5, rng.integers(-30, 9, 4000))
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, 65519, 65520, 2.0**-14, 2.0**-24, 2.0**-25, 1e-38, 3e38])
    with np.errstate(over="ignore"):
        values = np.concatenate([numbers, ties, special]).astype(Shape(kind).dtype)
    b = Builder()
    x = b.parameter(kind, values.shape)
    b.elementwise("reduce-precision", x, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)
    ((result,), _) = fast(b.module(), [values])
    (expected,) = evaluate(b.module(), [values])
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))
    zeros = expected.astype(np.float64) == 0
    np.testing.assert_array_equal(np.signbit(result.astype(np.float64))[zeros], np.signbit(values.astype(float))[zeros])


def test_reduce_precision_to_half_is_rounding_to_half() -> None:
    rng = np.random.default_rng(2)
    values = (rng.normal(size=5000) * np.exp(rng.normal(size=5000) * 6)).astype(np.float32)
    b = Builder()
    b.elementwise("reduce-precision", b.parameter("f32", values.shape), exponent_bits=5, mantissa_bits=10)
    ((result,), _) = fast(b.module(), [values])
    with np.errstate(over="ignore"):
        half = values.astype(np.float16).astype(np.float32)
    normal = np.abs(half) >= 2.0**-14
    np.testing.assert_array_equal(result[normal], half[normal])
    np.testing.assert_array_equal(result[~normal & (np.abs(values) < 2.0**-14 - 2.0**-26)], 0)
