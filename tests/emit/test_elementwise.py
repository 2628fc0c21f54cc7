"""Every emitter for every element type against the definitions; without the executor, which flushes denormals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from engine.emit import EMITTERS
from engine.emit.registry import COMPLEX_EMITTERS, FLUSHING
from engine.evaluate import evaluate
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.ir.opcodes import OPCODES
from engine.ir.shape import COMPLEX, NUMPY_TYPES
from engine.machine_code.processor import rounds_to_bf16
from tests.emit.cases import (
    ALL,
    EXACT_BINARY,
    EXACT_UNARY,
    FLOATS,
    INTEGERS,
    NUMBERS,
    OTHER,
    ROUNDED,
    hard_values,
    one_operation,
)
from tests.engine.running import ulps
from tests.exploring import sample
from tests.program.machine import machine_of

COUNT = 1003


def flushed(array: np.ndarray) -> np.ndarray:
    """The array, with zeros for denormal bfloat16 if an instruction rounds to bfloat16, as in the executor."""
    if array.dtype != ml_dtypes.bfloat16 or not rounds_to_bf16():
        return array
    wide = array.astype(np.float32)
    return np.where(np.abs(wide) < np.float32(2.0**-126), np.copysign(np.float32(0), wide), wide).astype(array.dtype)


def computed(module: Module, arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The result and the expected one. Arithmetic gets no denormal bfloat16; other operations keep it."""
    is_arithmetic = not FLUSHING.isdisjoint(each.opcode for each in module.entry.instructions)
    if is_arithmetic:
        arrays = [flushed(each) for each in arrays]
    with np.errstate(all="ignore"):
        (expected,) = evaluate(module, arrays)
    (result,) = machine_of(module, arrays).run()
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    return (flushed(result), flushed(expected)) if is_arithmetic else (result, expected)


def exactly_equal(module: Module, arrays: list[np.ndarray], signs: bool = True) -> None:
    """Equal in every bit but the payload of a NaN; without `signs`, 0 equals -0."""
    result, expected = computed(module, arrays)
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(result, expected)
        return
    with np.errstate(all="ignore"):
        wide = result.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(*wide)
    numbers = ~np.isnan(wide[1])
    if signs:
        np.testing.assert_array_equal(np.signbit(wide[0])[numbers], np.signbit(wide[1])[numbers])


def test_every_emitter_is_tested() -> None:
    assert set(EMITTERS) == {*EXACT_UNARY, *EXACT_BINARY, *ROUNDED, *OTHER}


@pytest.mark.parametrize("opcode", sorted({*EXACT_UNARY, *EXACT_BINARY, *ROUNDED} - {"power"}))
def test_rows_name_the_element_types_that_are_tried(opcode: str) -> None:
    tried = {**EXACT_UNARY, **EXACT_BINARY, **dict.fromkeys(ROUNDED, FLOATS)}[opcode]
    complex_types = COMPLEX if opcode in COMPLEX_EMITTERS else frozenset()
    assert {*tried} | complex_types == {*(OPCODES[opcode].operand_types or NUMPY_TYPES)}


@pytest.mark.parametrize("opcode", EXACT_UNARY)
def test_unary(opcode: str) -> None:
    rng = np.random.default_rng(1)
    for kind in sample(EXACT_UNARY[opcode], 7):
        x = hard_values(rng, kind, COUNT)
        exactly_equal(one_operation(opcode, [x], [kind]), [x])


@pytest.mark.parametrize("opcode", EXACT_BINARY)
def test_binary(opcode: str) -> None:
    rng = np.random.default_rng(2)
    # bf16 is always tried, as maximum and minimum keep its denormals
    for kind in dict.fromkeys((*sample(EXACT_BINARY[opcode], 7), *({"bf16"} & {*EXACT_BINARY[opcode]}))):
        arrays = [hard_values(rng, kind, COUNT) for _ in range(2)]
        # HLO does not say which of 0 and -0 is greater.
        exactly_equal(one_operation(opcode, arrays, [kind] * 2), arrays, not OPCODES[opcode].either_zero)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", INTEGERS)
def test_integer_power(kind: str) -> None:
    rng = np.random.default_rng(3)
    base, exponent = hard_values(rng, kind, COUNT), rng.integers(0, 40, COUNT).astype(Shape(kind).dtype)
    exactly_equal(one_operation("power", [base, exponent], [kind] * 2), [base, exponent])


@pytest.mark.parametrize("kind", [k for k in INTEGERS if k[0] == "s"])
def test_integer_power_of_a_negative_exponent(kind: str) -> None:
    base, exponent = np.meshgrid(np.arange(-4, 5), np.arange(-4, 3))
    arrays = [x.reshape(-1).astype(Shape(kind).dtype) for x in (base, exponent)]
    exactly_equal(one_operation("power", arrays, [kind] * 2), arrays)


@pytest.mark.parametrize("order", ["FLOAT", "TOTALORDER"])
@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_compare(direction: str, order: str) -> None:
    rng = np.random.default_rng(4)
    for kind in ("f32", "f64") if order == "TOTALORDER" else sample(ALL, 7):
        arrays = [hard_values(rng, kind, COUNT) for _ in range(2)]
        arrays[1][::3] = arrays[0][::3]
        module = one_operation("compare", arrays, [kind] * 2, direction=direction, comparison_type=order)
        exactly_equal(module, arrays)


@pytest.mark.parametrize("kind", ALL)
def test_select(kind: str) -> None:
    rng = np.random.default_rng(5)
    arrays = [hard_values(rng, k, COUNT) for k in ("pred", kind, kind)]
    exactly_equal(one_operation("select", arrays, ["pred", kind, kind]), arrays)


@pytest.mark.parametrize("kind", ALL)
def test_clamp(kind: str) -> None:
    rng = np.random.default_rng(6)
    arrays = [hard_values(rng, kind, COUNT) for _ in range(3)]
    exactly_equal(one_operation("clamp", arrays, [kind] * 3), arrays, signs=False)


@pytest.mark.parametrize("source", ALL)
def test_convert(source: str) -> None:
    x = hard_values(np.random.default_rng(7), source, COUNT)
    for target in ALL if source in FLOATS else (*FLOATS, *sample((*INTEGERS, "pred"), 3)):
        builder = Builder()
        builder.convert(builder.parameter(source, x.shape), target)
        exactly_equal(builder.module(), [x])


@pytest.mark.parametrize("factor", [0.5, -4.0, 3.0])
def test_results_of_bf16_that_need_no_rounding(factor: float) -> None:
    """Products by a power of two are exact, and sums of f32 that are converted have no denormal results."""
    x = flushed(hard_values(np.random.default_rng(21), "bf16", COUNT))
    b = Builder("scaled")
    operand = b.parameter("bf16", x.shape)
    scaled = b.multiply(operand, b.splat(factor, x.shape, "bf16"))
    wide = b.convert(operand, "f32")
    total = b.convert(b.multiply(wide, b.add(wide, b.splat(factor, x.shape))), "bf16")
    exactly_equal(b.module(b.multiply(scaled, total)), [x])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (a, b)
        for a in NUMBERS
        for b in NUMBERS
        if a != b and Shape(a).dtype.itemsize == Shape(b).dtype.itemsize and "f" in (a[0], b[0], a[1], b[1])
    ],
)
def test_bitcast_convert(source: str, target: str) -> None:
    x = hard_values(np.random.default_rng(8), source, COUNT)
    builder = Builder()
    builder.inferred("bitcast-convert", (builder.parameter(source, x.shape),), hint=Shape(target, x.shape))
    exactly_equal(builder.module(), [x])


@pytest.mark.parametrize("bits", [(5, 10), (8, 7)], ids=["f16", "bf16"])
def test_reduce_precision(bits: tuple[int, int]) -> None:
    x = hard_values(np.random.default_rng(9), "f32", COUNT)
    x = np.concatenate([x, np.linspace(5e-5, 7e-5, 999, dtype=np.float32), -x])
    # Denormals are kept here, while the executor flushes them.
    x = np.where(np.abs(x) < 2e-38, np.float32(0), x)
    attributes = {"exponent_bits": bits[0], "mantissa_bits": bits[1]}
    exactly_equal(one_operation("reduce-precision", [x], ["f32"], **attributes), [x])


def domain(opcode: str, kind: str, rng: np.random.Generator) -> list[np.ndarray]:
    arrays = [hard_values(rng, kind, 4001) for _ in range(2 if opcode in ("power", "atan2") else 1)]
    ordinary = (rng.normal(size=2000) * rng.choice([1e-3, 1, 10], 2000)).astype(arrays[0].dtype)
    arrays[0][:2000] = ordinary
    return arrays


@pytest.mark.sample(20)
@pytest.mark.parametrize("opcode", ROUNDED)
@pytest.mark.parametrize("kind", FLOATS)
def test_functions(opcode: str, kind: str) -> None:
    arrays = domain(opcode, kind, np.random.default_rng(10))
    module = one_operation(opcode, arrays, [kind] * len(arrays))
    result, expected = computed(module, arrays)
    # Rounding to a half twice, first to f32, may differ by one.
    allowed = 1 if kind in ("f16", "bf16") else ROUNDED[opcode][kind == "f64"]
    distance = ulps(result, expected)
    worst = int(np.argmax(distance))
    seen = [float(a[worst]) for a in arrays]
    assert distance[worst] <= allowed, (seen, float(result[worst]), float(expected[worst]), distance[worst])


def test_f16_rounds_like_numpy_everywhere() -> None:
    x = np.random.default_rng(11).integers(0, 2**32, 20000, np.uint32).view(np.float32)
    for kind, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        builder = Builder()
        builder.convert(builder.parameter("f32", x.shape), kind)
        (result,) = machine_of(builder.module(), [x]).run()
        with np.errstate(all="ignore"):
            expected = x.astype(dtype)
        np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))
