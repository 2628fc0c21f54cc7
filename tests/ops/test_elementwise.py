"""Elementwise ops at the values where definitions differ: zeros, NaN, infinities, extremes, odd widths."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ir import Shape
from tests.ops.running import run, same

INF, NAN = np.inf, np.nan
INTEGER_TYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def s32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("opcode", "function"),
    [
        ("exponential", math.exp),
        ("exponential-minus-one", math.expm1),
        ("log", math.log),
        ("log-plus-one", math.log1p),
        ("sqrt", math.sqrt),
        ("rsqrt", lambda x: 1 / math.sqrt(x)),
        ("cbrt", math.cbrt),
        ("sine", math.sin),
        ("cosine", math.cos),
        ("tan", math.tan),
        ("tanh", math.tanh),
        ("erf", math.erf),
        ("erfc", math.erfc),
        ("logistic", lambda x: 1 / (1 + math.exp(-x))),
    ],
)
def test_functions_are_rounded_once(opcode: str, function: Any, dtype: Any) -> None:
    x = np.linspace(0.01, 4, 57).astype(dtype)
    expected = np.array([function(float(v)) for v in x]).astype(dtype)
    result = run(opcode, x)
    assert result.dtype == expected.dtype
    # Nothing wider than doubles is used for them, and math rounds some of them differently.
    tolerance = 1e-15 if dtype is np.float64 else 0
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=tolerance)


@pytest.mark.parametrize(
    ("opcode", "x", "expected"),
    [
        ("sign", f32(-0.0, 0.0, -INF, 3, NAN), f32(-0.0, 0.0, -1, 1, NAN)),
        ("sign", s32(-5, 0, 9), s32(-1, 0, 1)),
        ("round-nearest-even", f32(0.5, 1.5, 2.5, -0.5, -1.5), f32(0, 2, 2, -0.0, -2)),
        ("round-nearest-afz", f32(0.5, 1.5, 2.5, -0.5, 0.49999997), f32(1, 2, 3, -1, 0)),
        ("ceil", f32(-0.5, 0.2, INF), f32(-0.0, 1, INF)),
        ("floor", f32(-0.5, -0.0, NAN), f32(-1, -0.0, NAN)),
        ("log", f32(0, -1, INF), f32(-INF, NAN, INF)),
        ("rsqrt", f32(0, 4, INF, -1), f32(INF, 0.5, 0, NAN)),
        ("logistic", f32(-INF, INF, -200, 0), f32(0, 1, 0, 0.5)),
        ("tanh", f32(-INF, -0.0), f32(-1, -0.0)),
        ("abs", s32(-(2**31), -3), s32(-(2**31), 3)),
        ("negate", np.array([1, 0, 255], np.uint8), np.array([255, 0, 1], np.uint8)),
        ("is-finite", f32(1, INF, NAN), np.array([True, False, False])),
        ("not", np.array([True, False]), np.array([False, True])),
        ("not", s32(0, -1, 5), s32(-1, 0, -6)),
        ("real", np.array([1 + 2j], np.complex64), f32(1)),
        ("imag", np.array([1 + 2j], np.complex64), f32(2)),
        ("abs", np.array([3 + 4j], np.complex64), f32(5)),
    ],
)
def test_known_values(opcode: str, x: np.ndarray, expected: np.ndarray) -> None:
    same(run(opcode, x), expected)


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_counting_bits(dtype: Any) -> None:
    width = np.dtype(dtype).itemsize * 8
    x = np.array([0, 1, 2, 77, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    bits = [format(int(v) % 2**width, f"0{width}b") for v in x]
    same(run("popcnt", x), np.array([b.count("1") for b in bits], dtype))
    same(run("count-leading-zeros", x), np.array([len(b) - len(b.lstrip("0")) for b in bits], dtype))


@given(st.sampled_from(INTEGER_TYPES), st.data())
def test_integer_division_is_total(dtype: Any, data: st.DataObject) -> None:
    limits = np.iinfo(dtype)
    number = st.integers(limits.min, limits.max) | st.sampled_from([0, 1, limits.min, limits.max])
    n, d = data.draw(number), data.draw(number | st.just(-1 if limits.min else 1))
    quotient, rest = (-1, n) if d == 0 else (int(Fraction(n, d)), n - d * int(Fraction(n, d)))
    operands = np.array([n], dtype), np.array([d], dtype)
    same(run("divide", *operands), np.array([quotient % 2**64], np.uint64).astype(dtype))
    same(run("remainder", *operands), np.array([rest % 2**64], np.uint64).astype(dtype))


@given(st.sampled_from(INTEGER_TYPES), st.data())
def test_shifts_beyond_the_width(dtype: Any, data: st.DataObject) -> None:
    limits, width = np.iinfo(dtype), np.dtype(dtype).itemsize * 8
    x = data.draw(st.integers(limits.min, limits.max))
    distance = data.draw(st.integers(0, min(limits.max, 2 * width)) | st.integers(limits.min, limits.max))
    far = not 0 <= distance < width
    bits = x % 2**width
    signed = bits - 2**width if bits >> (width - 1) else bits
    expected = {
        "shift-left": 0 if far else bits << distance,
        "shift-right-logical": 0 if far else bits >> distance,
        "shift-right-arithmetic": signed >> (width - 1 if far else distance),
    }
    for opcode, value in expected.items():
        result = run(opcode, np.array([x], dtype), np.array([distance], dtype))
        same(result, np.array([value % 2**width], np.uint64).astype(dtype))


def test_float_pairs() -> None:
    same(run("maximum", f32(NAN, 1, -INF), f32(1, NAN, 2)), f32(NAN, NAN, 2))
    same(run("minimum", f32(NAN, 1, -INF), f32(1, NAN, 2)), f32(NAN, NAN, -INF))
    same(run("remainder", f32(-5.5, 5.5, 1), f32(2, -2, 0)), f32(-1.5, 1.5, NAN))
    same(run("power", f32(0, -8, 2, -1), f32(0, 1 / 3, -INF, INF)), f32(1, NAN, 0, 1))
    same(run("divide", f32(1, -1, 0), f32(0, 0, 0)), f32(INF, -INF, NAN))
    same(run("atan2", f32(0, -0.0), f32(-1, -1)), f32(np.pi, -np.pi))
    same(run("complex", f32(1, NAN), f32(-0.0, 2)).real, f32(1, NAN))


def test_halves_compute_in_single_precision() -> None:
    x = np.array([1, 2048, 60000], np.float16)
    same(run("add", x, np.array([2**-11, 1, 60000], np.float16)), np.array([1, 2048, INF], np.float16))
    y = np.array([1.0078125, 3e18], ml_dtypes.bfloat16)
    expected = (y.astype(np.float32) * y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run("multiply", y, y), expected)


def test_integer_powers() -> None:
    same(
        run("power", s32(2, 0, 1, -1, -1, 3, 7), s32(-1, -2, -9, -3, -4, 40, 0)),
        s32(0, 0, 1, -1, 1, (3**40 + 2**31) % 2**32 - 2**31, 1),
    )


def test_pred_logic() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    same(run("and", x, y), x & y)
    same(run("or", x, y), x | y)
    same(run("xor", x, y), x ^ y)


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_comparison_with_nan_and_in_total_order(direction: str) -> None:
    ordered = f32(-NAN, -INF, -1, -0.0, 0.0, 1, INF, NAN)
    ordered[0] = np.copysign(np.float32(NAN), np.float32(-1))
    i, j = (index.ravel() for index in np.indices((8, 8)))
    compare = {"EQ": i == j, "NE": i != j, "LT": i < j, "LE": i <= j, "GT": i > j, "GE": i >= j}[direction]
    total = run("compare", ordered[i], ordered[j], direction=direction, comparison_type="TOTALORDER")
    same(total, compare)
    partial = run("compare", f32(NAN, -0.0), f32(NAN, 0.0), direction=direction)
    same(partial, np.array([direction == "NE", direction in ("EQ", "LE", "GE")]))


def test_select_and_clamp() -> None:
    same(run("select", np.array([True, False]), f32(1, 2), f32(3, NAN)), f32(1, NAN))
    same(run("select", np.array(False), f32(1, 2), f32(3, 4)), f32(3, 4))
    same(run("clamp", f32(0)[0], f32(-3, 0.5, 9, NAN), f32(1)[0]), f32(0, 0.5, 1, NAN))
    same(run("clamp", s32(5), s32(0), s32(2)), s32(2))


@pytest.mark.parametrize(
    ("x", "element_type", "expected"),
    [
        (
            f32(NAN, INF, -INF, 3e9, -3e9, 2.9, -2.9),
            "s32",
            s32(0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 2, -2),
        ),
        (f32(-1, 300, 254.9), "u8", np.array([0, 255, 254], np.uint8)),
        (f32(1e30, 2**63), "s64", np.array([2**63 - 1, 2**63 - 1])),
        (f32(1e30, -1), "u64", np.array([2**64 - 1, 0], np.uint64)),
        (f32(0.5, -0.0, NAN), "pred", np.array([True, False, True])),
        (s32(-1, 256), "u8", np.array([255, 0], np.uint8)),
        (s32(2**24 + 1), "f32", f32(2**24)),
        (np.array([True, False]), "f32", f32(1, 0)),
        (np.array([65519.0, 65520.0]), "f16", np.array([65504, INF], np.float16)),
        (f32(2), "c64", np.array([2], np.complex64)),
    ],
)
def test_convert(x: np.ndarray, element_type: str, expected: np.ndarray) -> None:
    same(run("convert", x, result=Shape(element_type, x.shape)), expected)


@pytest.mark.parametrize("narrow", ["u8", "u16", "s32", "u64"])
def test_bitcast_adds_and_takes_a_dimension(narrow: str) -> None:
    x = np.arange(6, dtype=np.float64).reshape(2, 3)
    dtype = Shape(narrow).dtype
    parts = run("bitcast-convert", x, result=Shape(narrow, ()))
    assert parts.shape == ((2, 3) if dtype.itemsize == 8 else (2, 3, 8 // dtype.itemsize))
    assert parts.tobytes() == x.tobytes()
    same(run("bitcast-convert", parts, result=Shape("f64", ())), x)


def test_reduce_precision_to_other_formats() -> None:
    x = np.array([1.0 + 2**-8, 3.14159, 1e-10, 70000.0, -70000.0, NAN, INF, 65504.0], np.float32)
    half = run("reduce-precision", x, exponent_bits=5, mantissa_bits=10)
    with np.errstate(over="ignore"):
        same(half, x.astype(np.float16).astype(np.float32))
    brain = run("reduce-precision", x, exponent_bits=8, mantissa_bits=7)
    same(brain, x.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("dimensions", [(), (0,), (3, 0, 2)])
def test_scalars_and_nothing(dimensions: tuple[int, ...]) -> None:
    x = np.full(dimensions, 0.25, np.float32)
    for opcode in ("erf", "negate", "sign", "round-nearest-afz"):
        assert run(opcode, x).shape == dimensions
    same(run("add", x, x), x * 2)
