"""Functions of one number recognised by their values."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import prepare
from engine.errors import InternalError
from engine.evaluate import evaluate
from engine.ir import Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.ops.registry import DEFINITIONS
from engine.passes.recognized_functions import recognized_functions
from tests.engine.running import check

SHAPE = (3, 70)
SMALL = (0.00056180223, -0.0049138167, 0.026707515, -0.1128001, 0.37612295, -1.1283791)
DIVIDEND = (0.102081165, 0.42920667, 0.32379079, 0.053971976)
DIVISOR = (0.017251678, 0.39137164, 1.0, 0.62173241, 0.09566286)


def polynomial(b: Builder, x: Instruction, coefficients: tuple[float, ...]) -> Instruction:
    value = b.splat(coefficients[0], SHAPE)
    for coefficient in coefficients[1:]:
        value = b.add(b.multiply(value, x), b.splat(coefficient, SHAPE))
    return value


def written_out(b: Builder, x: Instruction, two: float = 2.0, size: Instruction | None = None) -> Instruction:
    """erfc as TensorFlow writes it."""
    one = b.splat(1.0, SHAPE)
    square, size = b.multiply(x, x), size or b.elementwise("abs", x)
    near = b.add(b.multiply(x, polynomial(b, square, SMALL)), one)
    inverse = b.divide(one, square)
    divisor = b.multiply(b.elementwise("minimum", size, b.splat(10.06, SHAPE)), polynomial(b, inverse, DIVISOR))
    fraction = b.divide(polynomial(b, inverse, DIVIDEND), divisor)
    far = b.multiply(b.elementwise("exponential", b.elementwise("negate", square)), fraction)
    negative = b.compare(x, b.splat(0.0, SHAPE), "LT")
    far = b.select(negative, b.subtract(b.splat(two, SHAPE), far), far)
    return b.select(b.compare(size, one, "GT"), far, near)


def module_of(two: float = 2.0) -> Module:
    b = Builder()
    y = b.multiply(b.parameter("f32", SHAPE), b.parameter("f32", SHAPE))
    return b.module(b.tuple(b.add(written_out(b, y, two), y), b.elementwise("negate", y)))


def opcodes(module: Module) -> list[str]:
    return [i.opcode for computation in module.computations() for i in computation.instructions]


def test_what_is_written_out_becomes_one_operation() -> None:
    module = module_of()
    found = prepare(module, verify=True)
    assert opcodes(found).count("erfc") == 1
    assert not {"exponential", "select"} & set(opcodes(found))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=SHAPE).astype("f"), rng.normal(size=SHAPE).astype("f") * 3
    check(module, [x, y])
    zeros = np.zeros(SHAPE, np.float32)
    zeros[0], zeros[1, ::2] = -0.0, 30
    check(module, [zeros, np.ones(SHAPE, np.float32)])
    (kept, _), (written, _) = (evaluate(each, [x, y]) for each in (module, recognized_functions(module)))
    np.testing.assert_allclose(written, kept, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("two", [1.9999, 1.0])
def test_almost_the_function_is_not_the_function(two: float) -> None:
    assert "erfc" not in opcodes(recognized_functions(module_of(two)))


def test_what_follows_from_two_arrays_is_no_function_of_one() -> None:
    b = Builder()
    x, y = b.parameter("f32", SHAPE), b.parameter("f32", SHAPE)
    module = b.module(b.select(b.compare(x, y, "LT"), written_out(b, x), y))
    assert opcodes(recognized_functions(module)).count("erfc") == 1
    b = Builder()
    x, y = b.parameter("f32", SHAPE), b.parameter("f32", SHAPE)
    both = b.select(b.compare(x, b.splat(0.0, SHAPE), "LT"), written_out(b, y), b.elementwise("exponential", x))
    found = recognized_functions(b.module(both))
    assert opcodes(found).count("erfc") == 1 and found.entry.root.opcode == "select"


def absolute_by_bits(b: Builder, x: Instruction, shape: tuple[int, ...]) -> Instruction:
    """Builds abs as a mask on the bits; definitions of bitcast-convert need the shape of their operand."""
    bits = b.instruction("bitcast-convert", Shape("u32", shape), [x])
    masked = b.elementwise("and", bits, b.splat(0x7FFFFFFF, shape, "u32"))
    return b.instruction("bitcast-convert", Shape("f32", shape), [masked])


@pytest.mark.parametrize("is_erfc", [True, False])
def test_numbers_that_pass_through_their_bits(is_erfc: bool) -> None:
    b = Builder()
    x = b.parameter("f32", SHAPE)
    value = written_out(b, x, size=absolute_by_bits(b, x, SHAPE), two=2.0 if is_erfc else 3.0)
    module = b.module(value)
    assert ("erfc" in opcodes(recognized_functions(module))) == is_erfc
    check(module)


@pytest.mark.parametrize("error", [ValueError("shapes"), InternalError("shapes"), KeyError("attribute")])
def test_an_operation_that_cannot_be_sampled_ends_no_compilation(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    module = module_of()
    monkeypatch.setitem(DEFINITIONS, "exponential", fails)
    assert opcodes(recognized_functions(module)) == opcodes(module)
