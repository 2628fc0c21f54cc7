"""Arithmetic with neutral and equal operands. Every rule keeps each bit of the result, signed zeros included.

So x + 0 stays, since it turns -0 into +0, and x * 0 stays, since x may be infinite; for integers both are removed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import Instruction
from engine.ir.shape import FLOATS, INTEGERS
from engine.passes import construct
from engine.passes.rewriting import Rule, RuleSet
from engine.passes.splats import is_negative_zero, is_positive_zero, is_splat_of, splat_value

RULES = RuleSet()


def either_order(rule: Callable[[Instruction, Instruction, Instruction], Instruction | None]) -> Rule:
    """A rule for commutative operations that tries another one with the operands in both orders."""

    def both(instruction: Instruction) -> Instruction | None:
        lhs, rhs = instruction.operands
        replacement = rule(instruction, lhs, rhs)
        return rule(instruction, rhs, lhs) if replacement is None else replacement

    return both


def is_integer(instruction: Instruction) -> bool:
    """Whether the elements are integers, signed or not."""
    return instruction.array_shape.element_type in INTEGERS


def is_float(instruction: Instruction) -> bool:
    """Whether the elements are real floating-point numbers."""
    return instruction.array_shape.element_type in FLOATS


def is_real(instruction: Instruction) -> bool:
    """Whether the elements are not complex: a complex x times 1 need not be x where a part is infinite."""
    return is_integer(instruction) or is_float(instruction)


@RULES.on("multiply")
@either_order
def multiply(instruction: Instruction, x: Instruction, factor: Instruction) -> Instruction | None:
    """Multiplication by 1, by -1, and by the integer 0."""
    if is_real(x) and is_splat_of(factor, 1):
        return x
    if is_integer(x) and is_splat_of(factor, 0):
        return factor
    if is_float(x) and is_splat_of(factor, -1):
        return construct.elementwise(instruction, "negate", x)
    return None


@RULES.on("add")
@either_order
def add(instruction: Instruction, x: Instruction, other: Instruction) -> Instruction | None:
    """Addition of zero (-0 for floats), or of a negated value."""
    if is_negative_zero(other) or (is_integer(x) and is_splat_of(other, 0)):
        return x
    if other.opcode == "negate" and is_float(x):
        return construct.elementwise(instruction, "subtract", x, other.operands[0])
    return None


@RULES.on("subtract")
def subtract(instruction: Instruction) -> Instruction | None:
    """Subtraction of zero, of a value from itself or from zero, or of a negated value."""
    x, y = instruction.operands
    if is_positive_zero(y):
        return x
    if is_integer(x) and x is y:
        return construct.splat_of(instruction, 0, x.array_shape)
    if is_negative_zero(x) or (is_integer(x) and is_positive_zero(x)):
        return construct.elementwise(instruction, "negate", y)
    return construct.elementwise(instruction, "add", x, y.operands[0]) if y.opcode == "negate" else None


@RULES.on("divide")
def divide(instruction: Instruction) -> Instruction | None:
    """Division by a power of two is a multiplication: both round the same exact quotient."""
    x, divisor = instruction.operands
    if is_real(x) and is_splat_of(divisor, 1):
        return x
    value = splat_value(divisor)
    if value is None or not is_float(x):
        return None
    reciprocal = _exact_reciprocal(value)
    if reciprocal is None:
        return None
    factor = construct.splat_of(instruction, reciprocal, divisor.array_shape)
    return construct.elementwise(instruction, "multiply", x, factor)


def _exact_reciprocal(value: np.ndarray) -> np.ndarray | None:
    """1 / value if value is a power of two and neither it nor its reciprocal is denormal; else None."""
    number = float(value)
    if not np.isfinite(number) or abs(np.frexp(number)[0]) != 0.5:
        return None
    with np.errstate(all="ignore"):
        reciprocal = np.asarray(1.0 / number).astype(value.dtype)
    smallest = 2.0 ** {np.dtype(np.float16): -14, np.dtype(np.float64): -1022}.get(value.dtype, -126)
    if not np.isfinite(float(reciprocal)) or min(abs(number), abs(float(reciprocal))) < smallest:
        return None
    return reciprocal


@RULES.on("power")
def power(instruction: Instruction) -> Instruction | None:
    """Exponents 1 and 2, for which the replacement is correctly rounded by definition, and 3, as in XLA: a product that
    is rounded twice takes a hundredth of the C library's time."""
    base, exponent = instruction.operands
    if is_splat_of(exponent, 1):
        return base
    if is_splat_of(exponent, 2):
        return construct.elementwise(instruction, "multiply", base, base)
    if is_splat_of(exponent, 3) and is_float(base):
        square = construct.elementwise(instruction, "multiply", base, base)
        return construct.elementwise(instruction, "multiply", square, base)
    return None


@RULES.on("negate", "not")
def inverse_of_inverse(instruction: Instruction) -> Instruction | None:
    """A value negated or inverted twice is the value."""
    operand = instruction.operands[0]
    return operand.operands[0] if operand.opcode == instruction.opcode else None


@RULES.on("abs")
def absolute(instruction: Instruction) -> Instruction | None:
    """The absolute value of a negated value, or of an absolute value."""
    operand = instruction.operands[0]
    if operand.opcode == "negate" and is_float(operand):
        return construct.elementwise(instruction, "abs", operand.operands[0])
    return operand if operand.opcode == "abs" else None


@RULES.on("maximum", "minimum")
@either_order
def extremum(instruction: Instruction, x: Instruction, bound: Instruction) -> Instruction | None:
    """The extremum of a value with itself, or with the infinity that never wins (a NaN stays one either way)."""
    never = -np.inf if instruction.opcode == "maximum" else np.inf
    return x if x is bound or (is_float(x) and is_splat_of(bound, never)) else None


@RULES.on("shift-left", "shift-right-arithmetic", "shift-right-logical")
def shift_by_nothing(instruction: Instruction) -> Instruction | None:
    """A shift by zero."""
    x, distance = instruction.operands
    return x if is_splat_of(distance, 0) else None
