"""Conversions to and from halves round to the nearest, ties to even, in every bit: all halves, all exponents, all ties.

The oracle only uses that the bits of positive halves count upwards. So it finds the nearest half by searching, and
takes the one with even bits if two are equally near.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from tests.engine.running import fast
from tests.program.machine import machine_of

HALF_TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
MANTISSA_BITS = {"f16": 10, "bf16": 7}
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80}
WHOLE_NUMBERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
EVERY_HALF = np.arange(1 << 16, dtype=np.uint16)
Run = Callable[[Module, np.ndarray], np.ndarray]
# A type that holds every source exactly: on x86 it has 64 bits of mantissa, elsewhere more.
Exact = np.longdouble


def positive_values(kind: str) -> np.ndarray:
    """The value of each bit pattern from 0 to infinity; infinity counts as the next power of two."""
    mantissa_bits = MANTISSA_BITS[kind]
    bits = np.arange(INFINITY[kind] + 1)
    exponent, mantissa = bits >> mantissa_bits, bits & ((1 << mantissa_bits) - 1)
    lead = np.where(exponent > 0, 1 << mantissa_bits, 0)
    lowest = 1 - (INFINITY[kind] >> (mantissa_bits + 1)) - mantissa_bits
    return np.ldexp((lead + mantissa).astype(Exact), np.maximum(exponent, 1) - 1 + lowest)


def values_of(half: np.ndarray) -> np.ndarray:
    """The values of the bits, as float64."""
    (kind,) = (name for name, dtype in HALF_TYPES.items() if dtype == half.dtype)
    bits = half.view(np.uint16)
    size, limit = bits & 0x7FFF, INFINITY[kind]
    finite = positive_values(kind)[np.minimum(size, limit)].astype(np.float64)
    found = np.where(size > limit, np.nan, np.where(size == limit, np.inf, finite))
    return np.where(bits >> 15 == 1, -found, found)


def nearest_bits(values: np.ndarray, kind: str) -> np.ndarray:
    """The bits of the nearest 16-bit float, uint16; for a NaN they are not specified."""
    half, sizes = positive_values(kind), np.abs(values.astype(Exact))
    below = np.clip(np.searchsorted(half, sizes, side="right") - 1, 0, INFINITY[kind] - 1)
    middle = (half[below] + half[below + 1]) / 2
    bits = below + ((sizes > middle) | ((sizes == middle) & (below % 2 == 1)))
    sign = np.signbit(values) if values.dtype.kind == "f" else values < 0
    return np.asarray(bits + (sign.astype(np.int64) << 15), np.uint16)


def conversion(source: str, target: str, count: int) -> Module:
    builder = Builder()
    builder.convert(builder.parameter(source, (count,)), target)
    return builder.module()


def on_machine(module: Module, values: np.ndarray) -> np.ndarray:
    return machine_of(module, [values]).run()[0]


def by_definition(module: Module, values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return evaluate(module, [values])[0]


def on_workers(module: Module, values: np.ndarray) -> np.ndarray:
    return fast(module, [values])[0][0]


def check_to_half(values: np.ndarray, source: str, kind: str, run: Run) -> None:
    result = run(conversion(source, kind, len(values)), values)
    assert result.dtype == HALF_TYPES[kind]
    nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    np.testing.assert_array_equal(np.isnan(result.astype(np.float32)), nan)
    received, expected = result.view(np.uint16)[~nan], nearest_bits(values[~nan], kind)
    wrong = received != expected
    shown = [
        (str(v), hex(r), hex(e))
        for v, r, e in zip(values[~nan][wrong][:5], received[wrong], expected[wrong], strict=False)
    ]
    assert not wrong.any(), f"{wrong.sum()} of {len(wrong)} differ, such as {shown}"


def near_ties(kind: str, dtype: type[np.floating]) -> np.ndarray:
    """Makes each 16-bit float, each middle between two, and the numbers next to these, with both signs."""
    half = positive_values(kind)
    points = np.concatenate([half, (half[:-1] + half[1:]) / 2])
    with np.errstate(over="ignore"):
        points = points.astype(dtype)
    nearby = [points, np.nextafter(points, dtype(np.inf)), np.nextafter(points, dtype(0))]
    found = np.concatenate([*nearby, np.array([np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)])
    return np.concatenate([found, -found])


def every_exponent(dtype: type[np.floating]) -> np.ndarray:
    """Random mantissas with every exponent, denormal numbers, infinities and NaN among them."""
    word, mantissa = (np.uint32, 23) if dtype is np.float32 else (np.uint64, 52)
    exponents = np.arange(1 << (8 if dtype is np.float32 else 11), dtype=word)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << mantissa, (64, len(exponents)), word) | (exponents << word(mantissa))
    # A signalling NaN would make NumPy warn wherever it goes.
    values = bits.reshape(-1).view(dtype)
    values = np.where(np.isnan(values), dtype(np.nan), values)
    return np.concatenate([values, -values])


@pytest.mark.parametrize("kind", HALF_TYPES)
@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("run", [on_machine, by_definition])
def test_floats_to_halves(source: str, kind: str, run: Run) -> None:
    dtype = Shape(source).dtype.type
    for values in (near_ties(kind, dtype), every_exponent(dtype)):
        check_to_half(values, source, kind, run)


@pytest.mark.parametrize("kind", HALF_TYPES)
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_workers_flush_nothing_but_what_is_denormal_in_the_source(source: str, kind: str) -> None:
    """Workers take denormal numbers of their arithmetic for zero, but a denormal float16 is an ordinary float32."""
    dtype = Shape(source).dtype.type
    values = np.concatenate([near_ties(kind, dtype), every_exponent(dtype)])
    normal = np.abs(values) >= np.finfo(np.float32).tiny
    check_to_half(values[normal | (values == 0) | np.isnan(values)], source, kind, on_workers)


@pytest.mark.parametrize("kind", HALF_TYPES)
@pytest.mark.parametrize("source", WHOLE_NUMBERS)
@pytest.mark.parametrize("run", [on_machine, by_definition])
def test_whole_numbers_to_halves(source: str, kind: str, run: Run) -> None:
    dtype = Shape(source).dtype
    limits = np.iinfo(dtype)
    if dtype.itemsize <= 2:
        values = np.arange(limits.min, limits.max + 1).astype(dtype)
    else:
        rng = np.random.default_rng(1)
        any_size = rng.integers(limits.min, limits.max, 20000, dtype, endpoint=True) >> rng.integers(
            0, 8 * dtype.itemsize, 20000, dtype
        )
        points = positive_values(kind)
        points = np.concatenate([points, (points[:-1] + points[1:]) / 2])
        points = points[(points < Exact(limits.max)) & (points == np.floor(points))].astype(dtype)
        steps = np.array([0, 1, 2, 1 << 9, 1 << 20], dtype)[:, None]
        beside = np.concatenate([(points + steps).reshape(-1), (points - steps).reshape(-1)])
        beside = np.concatenate([beside, (~beside).astype(dtype)]) if limits.min < 0 else beside
        values = np.concatenate([any_size, beside, np.array([limits.min, limits.max, 0], dtype)])
    check_to_half(values, source, kind, run)


@pytest.mark.parametrize("kind", HALF_TYPES)
@pytest.mark.parametrize("target", ["f32", "f64"])
@pytest.mark.parametrize("run", [on_machine, by_definition, on_workers])
def test_every_half_to_a_float_and_back(kind: str, target: str, run: Run) -> None:
    half = EVERY_HALF.view(HALF_TYPES[kind])
    if run is on_workers and kind == "bf16":
        # Denormal bfloat16 are denormal float32, too.
        half = half[(EVERY_HALF & 0x7F80 != 0) | (EVERY_HALF & 0x7FFF == 0)]
    wide = run(conversion(kind, target, len(half)), half)
    values = values_of(half)
    nan = np.isnan(values)
    np.testing.assert_array_equal(wide, values)
    np.testing.assert_array_equal(np.signbit(wide), np.signbit(half))
    back = run(conversion(target, kind, len(wide)), wide)
    np.testing.assert_array_equal(back.view(np.uint16)[~nan], half.view(np.uint16)[~nan])


@pytest.mark.parametrize("source", HALF_TYPES)
@pytest.mark.parametrize("run", [on_machine, by_definition])
def test_every_half_to_the_other_kind(source: str, run: Run) -> None:
    (target,) = HALF_TYPES.keys() - {source}
    half = EVERY_HALF.view(HALF_TYPES[source])
    result = run(conversion(source, target, len(half)), half)
    values = values_of(half)
    nan = np.isnan(values)
    np.testing.assert_array_equal(np.isnan(result.astype(np.float32)), nan)
    expected = nearest_bits(values[~nan], target)
    np.testing.assert_array_equal(result.view(np.uint16)[~nan], expected)


@pytest.mark.parametrize("kind", HALF_TYPES)
@pytest.mark.parametrize("target", WHOLE_NUMBERS)
@pytest.mark.parametrize("run", [on_machine, by_definition])
def test_every_half_to_whole_numbers(kind: str, target: str, run: Run) -> None:
    """Rounds towards zero, and saturates; NaN becomes 0."""
    half = EVERY_HALF.view(HALF_TYPES[kind])
    result = run(conversion(kind, target, len(half)), half)
    limits = np.iinfo(Shape(target).dtype)
    values = values_of(half).tolist()
    expected = [
        0 if v != v else limits.max if v >= limits.max else limits.min if v <= limits.min else int(v) for v in values
    ]
    np.testing.assert_array_equal(result, np.array(expected, result.dtype))


@pytest.mark.parametrize("kind", HALF_TYPES)
def test_a_result_of_arithmetic_is_rounded_once(kind: str) -> None:
    """Sums and products of halves are those of float32, rounded as a conversion would."""
    rng = np.random.default_rng(2)
    half = [rng.integers(0, 1 << 16, 1 << 16, np.uint16).view(HALF_TYPES[kind]) for _ in range(2)]
    with np.errstate(all="ignore"):
        wide = [each.astype(np.float32) for each in half]
        expected = {"add": wide[0] + wide[1], "multiply": wide[0] * wide[1], "subtract": wide[0] - wide[1]}
    for opcode, values in expected.items():
        builder = Builder()
        builder.elementwise(opcode, *(builder.parameter(kind, each.shape) for each in half))
        (result,) = machine_of(builder.module(), half).run()
        # Results that are denormal numbers of float32 may be zero, as they are under the executor.
        number = ~np.isnan(values) & ((values == 0) | (np.abs(values) >= 2.0**-126))
        np.testing.assert_array_equal(result.view(np.uint16)[number], nearest_bits(values[number], kind))
