"""simplify_arithmetic: every operation with every special operand keeps its bits."""

import itertools

import numpy as np
import pytest

from engine.ir.builder import Builder
from engine.ir.shape import holds_all_of
from engine.passes.dead_code import dead_code
from engine.passes.simplify_arithmetic import simplify_arithmetic
from tests.passes.checking import SPECIAL, alive, assert_same_results

FLOATS = ["f16", "bf16", "f32", "f64"]
INTEGERS = ["s8", "u8", "s16", "s32", "u32", "s64", "u64"]
ARITHMETIC = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
BITWISE = ["and", "or", "xor"]
SHIFTS = ["shift-left", "shift-right-logical", "shift-right-arithmetic"]
POWERS_OF_TWO = [4.0, 0.25, -8.0, 3.0, 1e-30, 2.0**-126, 2.0**127, 2.0**-140, 2.0**-14, 2.0**15, 2.0**-24]


def with_splat(opcode, element_type, value, *, splat_first):
    b = Builder()
    x = b.parameter(element_type, (64,))
    splat = b.splat(value, (64,), element_type)
    return b.module(b.elementwise(opcode, *([splat, x] if splat_first else [x, splat])))


@pytest.mark.parametrize("element_type", FLOATS)
@pytest.mark.parametrize("opcode", ARITHMETIC)
def test_float_with_special_operand_keeps_its_bits(opcode, element_type):
    for value, first in itertools.product([*SPECIAL, *POWERS_OF_TWO], [False, True]):
        with np.errstate(all="ignore"):
            module = with_splat(opcode, element_type, value, splat_first=first)
        assert_same_results(module, simplify_arithmetic(module), seed=3)


@pytest.mark.parametrize("element_type", INTEGERS)
@pytest.mark.parametrize("opcode", [*ARITHMETIC, *BITWISE, *SHIFTS])
def test_integer_with_special_operand_keeps_its_bits(opcode, element_type):
    dtype = Builder().parameter(element_type).array_shape.dtype
    limits = np.iinfo(dtype)
    for value, first in itertools.product({0, 1, 2, limits.min, limits.max}, [False, True]):
        module = with_splat(opcode, element_type, value, splat_first=first)
        assert_same_results(module, simplify_arithmetic(module), seed=4)


@pytest.mark.parametrize("opcode", BITWISE)
@pytest.mark.parametrize("value", [False, True])
def test_predicates(opcode, value):
    module = with_splat(opcode, "pred", value, splat_first=False)
    after = simplify_arithmetic(module)
    assert_same_results(module, after)
    assert opcode not in alive(after)


@pytest.mark.parametrize(
    ("opcode", "value", "left"),
    [
        ("multiply", 1.0, []),
        ("multiply", -1.0, ["negate"]),
        ("multiply", 0.0, ["broadcast", "multiply"]),
        ("add", -0.0, []),
        ("add", 0.0, ["broadcast", "add"]),
        ("subtract", 0.0, []),
        ("subtract", -0.0, ["broadcast", "subtract"]),
        ("divide", 1.0, []),
        ("divide", 4.0, ["broadcast", "multiply"]),
        ("divide", 3.0, ["broadcast", "divide"]),
        # The divisor or its reciprocal would be flushed to zero.
        ("divide", 2.0**127, ["broadcast", "divide"]),
        ("divide", 2.0**-127, ["broadcast", "divide"]),
        ("maximum", -np.inf, []),
        ("minimum", np.inf, []),
        ("maximum", np.inf, ["broadcast", "maximum"]),
        ("power", 1.0, []),
        ("power", 2.0, ["multiply"]),
        ("power", 3.0, ["multiply", "multiply"]),
        ("power", 0.5, ["broadcast", "power"]),
    ],
)
def test_what_is_left(opcode, value, left):
    after = simplify_arithmetic(with_splat(opcode, "f32", value, splat_first=False))
    assert alive(after) == left


@pytest.mark.parametrize("exponent", [2.0, 3.0])
def test_powers_to_rounding(exponent):
    module = with_splat("power", "f32", exponent, splat_first=False)
    assert_same_results(module, simplify_arithmetic(module), tolerance=1e-6)


@pytest.mark.parametrize("element_type", FLOATS)
@pytest.mark.parametrize("opcode", ["add", "subtract"])
@pytest.mark.parametrize("negated", [0, 1])
def test_negated_operand(opcode, negated, element_type):
    b = Builder()
    operands = [b.parameter(element_type, (50,)), b.parameter(element_type, (50,))]
    operands[negated] = b.elementwise("negate", operands[negated])
    module = b.module(b.elementwise(opcode, *operands))
    after = simplify_arithmetic(module)
    assert_same_results(module, after, seed=5)
    assert ("negate" in alive(after)) == (opcode == "subtract" and negated == 0)


@pytest.mark.parametrize(
    ("opcodes", "left"), [(["negate", "negate"], []), (["negate", "abs"], ["abs"]), (["abs", "abs"], ["abs"])]
)
def test_signs(opcodes, left):
    b = Builder()
    x = b.parameter("f32", (40,))
    for opcode in opcodes:
        x = b.elementwise(opcode, x)
    module = b.module()
    after = simplify_arithmetic(module)
    assert_same_results(module, after)
    assert alive(after) == left


def test_select():
    b = Builder()
    p, x, y = b.parameter("pred", (9,)), b.parameter("f32", (9,)), b.parameter("f32", (9,))
    true, false = b.splat(True, (9,), "pred"), b.splat(False, (9,), "pred")
    results = [
        b.select(true, x, y),
        b.select(false, x, y),
        b.select(p, x, x),
        b.select(b.elementwise("not", p), x, y),
        b.select(p, true, false),
        b.select(p, false, true),
    ]
    module = b.module(b.tuple(*results))
    after = simplify_arithmetic(module)
    assert_same_results(module, after)
    assert [result.opcode for result in after.results] == ["parameter"] * 3 + ["select", "parameter", "not"]
    assert after.results[3].operands[0].opcode == "parameter"


def test_comparison_with_itself_knows_about_nan():
    b = Builder()
    x, n = b.parameter("f32", (60,)), b.parameter("s32", (60,))
    module = b.module(b.tuple(b.compare(x, x, "EQ"), b.compare(n, n, "EQ"), b.compare(n, n, "LT")))
    after = simplify_arithmetic(module)
    assert_same_results(module, after)
    assert [result.opcode for result in after.results] == ["compare", "broadcast", "broadcast"]


TYPES = ["pred", *INTEGERS, "u16", *FLOATS]


@pytest.mark.parametrize("source", TYPES)
def test_conversion_chains_keep_every_bit(source):
    for middle, target in itertools.product(TYPES, TYPES):
        b = Builder()
        x = b.parameter(source, (64,))
        module = b.module(b.convert(b.convert(x, middle), target))
        assert_same_results(module, simplify_arithmetic(module), seed=1)


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        ("f32", "f16", True), ("f32", "s32", False), ("f64", "s32", True), ("f64", "s64", False),
        ("s64", "u32", True), ("u64", "s32", False), ("f16", "bf16", False), ("bf16", "u8", True),
        ("s8", "pred", True), ("pred", "s8", False), ("s32", "u32", False), ("f16", "u16", False),
    ],
)  # fmt: skip
def test_which_types_hold_which(wide, narrow, holds):
    assert holds_all_of(wide, narrow) is holds


@pytest.mark.parametrize(
    ("chain", "left"),
    [
        (["s32", "s64", "s32"], 0),
        (["f32", "f64", "f32"], 0),
        (["f16", "f32", "f16"], 0),
        (["f32", "f16", "f32"], 2),
        (["u8", "f32", "s8"], 2),
        (["pred", "f32", "s32"], 1),
        (["s8", "s32", "f32"], 1),
    ],
)
def test_conversions_left(chain, left):
    b = Builder()
    x = b.parameter(chain[0], (4,))
    for element_type in chain[1:]:
        x = b.convert(x, element_type)
    after = dead_code(simplify_arithmetic(b.module()))
    assert alive(after) == ["convert"] * left


def test_scalars_are_computed_before_they_are_broadcast():
    b = Builder()
    x, y = b.parameter("f32"), b.parameter("f32")
    product = b.multiply(b.broadcast(x, (100, 100), ()), b.broadcast(y, (100, 100), ()))
    module = b.module(b.multiply(product, b.splat(3.0, (100, 100))))
    after = simplify_arithmetic(module)
    assert_same_results(module, after)
    assert alive(after) == ["multiply", "multiply", "broadcast"]


def test_unit_dimensions_leave_an_elementwise_chain():
    b = Builder()
    x, y = (b.reshape(b.parameter("f32", (7,)), (1, 1, 7)) for _ in range(2))
    module = b.module(b.elementwise("exponential", b.add(x, y)))
    after = simplify_arithmetic(module)
    assert_same_results(module, after)
    assert alive(after) == ["add", "exponential", "reshape"]
