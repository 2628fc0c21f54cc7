"""Elementwise operations of two and three operands: arithmetic, bits, compare, select, clamp; and conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import Instruction
from engine.ops.apply import UFUNCS
from engine.ops.floats import COMPLEX, as_unsigned, computing, converted, is_complex, is_float, is_integer, widest
from engine.ops.registry import definition
from engine.ops.rounding import nearest_half


@definition(*UFUNCS)
def _arithmetic(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Computes arithmetic: integers wrap around, and maximum and minimum are NaN if either operand is."""
    lhs, rhs = operands
    return np.asarray(UFUNCS[instruction.opcode](computing(lhs), computing(rhs))).astype(lhs.dtype)


@definition("divide", "remainder")
def _divide(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Divides; integers round towards zero. By zero they give -1 (all bits set); the least integer by -1 is itself.

    A remainder has the dividend's sign; an integer's remainder by zero is the dividend.
    """
    lhs, rhs = operands
    divides = instruction.opcode == "divide"
    if is_integer(lhs):
        quotient, rest = _truncated(lhs, rhs)
        return quotient if divides else rest
    return np.asarray((np.divide if divides else np.fmod)(computing(lhs), computing(rhs))).astype(lhs.dtype)


def _truncated(lhs: np.ndarray, rhs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    one, minus_one = np.ones((), lhs.dtype), np.invert(np.zeros((), lhs.dtype))
    by_zero = rhs == 0
    divisor = np.where(by_zero, one, rhs)
    if lhs.dtype.kind == "i":
        negated = divisor == -1
        divisor = np.where(negated, one, divisor)
        rest = np.fmod(lhs, divisor)
        quotient = (lhs - rest) // divisor
        quotient = np.where(negated, np.negative(lhs), quotient)
    else:
        rest, quotient = lhs % divisor, lhs // divisor
    return (
        np.asarray(np.where(by_zero, minus_one, quotient), lhs.dtype),
        np.asarray(np.where(by_zero, lhs, rest), lhs.dtype),
    )


@definition("power")
def _power(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Raises to a power; integers with a negative exponent give the integer part of the exact power, and 0 for base
    0.
    """
    lhs, rhs = operands
    if not is_integer(lhs):
        return np.asarray(np.power(widest(lhs), widest(rhs))).astype(lhs.dtype)
    zero, one = np.zeros((), lhs.dtype), np.ones((), lhs.dtype)
    result = np.power(lhs, np.where(rhs < 0, zero, rhs))
    alternating = np.where(rhs & one == 1, lhs, one)
    inverse = np.where(lhs == 1, one, np.where((lhs < 0) & (lhs + one == 0), alternating, zero))
    return np.asarray(np.where(rhs < 0, inverse, result), lhs.dtype)


@definition("atan2")
def _arc_tangent(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    y, x = operands
    if is_complex(y):
        wide_y, wide_x = widest(y), widest(x)
        return (-1j * np.log((wide_x + 1j * wide_y) / np.sqrt(wide_x**2 + wide_y**2))).astype(y.dtype)
    return np.asarray(np.arctan2(widest(y), widest(x))).astype(y.dtype)


@definition("complex")
def _complex(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    real, imaginary = operands
    result = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.result_type(real.dtype, np.complex64))
    result.real, result.imag = real, imaginary
    return result


@definition("shift-left", "shift-right-logical")
def _logical_shift(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Shifts in zeros; the result is zero if the distance, as unsigned, is the width or more."""
    lhs, rhs = as_unsigned(operands[0]), as_unsigned(operands[1])
    width = 8 * lhs.dtype.itemsize
    distance = np.minimum(rhs, lhs.dtype.type(width - 1))
    shift = np.left_shift if instruction.opcode == "shift-left" else np.right_shift
    shifted = np.where(rhs < width, shift(lhs, distance), lhs.dtype.type(0))
    return np.asarray(shifted, lhs.dtype).view(operands[0].dtype)


@definition("shift-right-arithmetic")
def _arithmetic_shift(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Shifts right with copies of the sign bit, which fill the result if the distance, unsigned, is the width or
    more.
    """
    lhs, rhs = operands
    signed = np.dtype(f"i{lhs.dtype.itemsize}")
    distance = np.minimum(as_unsigned(rhs), as_unsigned(rhs).dtype.type(8 * lhs.dtype.itemsize - 1))
    return np.asarray(np.right_shift(lhs.view(signed), distance.astype(signed))).view(lhs.dtype)


COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def total_order(x: np.ndarray) -> np.ndarray:
    """Maps floats to signed integers of the same width, in the order -NaN < -Inf < ... < -0 < +0 < ... < Inf < NaN."""
    signed = np.dtype(f"i{x.dtype.itemsize}")
    bits = np.asarray(x).view(signed)
    return np.where(bits < 0, bits ^ np.iinfo(signed).max, bits)


@definition("compare")
def _compare(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    lhs, rhs = operands
    if instruction.get("comparison_type") == "TOTALORDER" and is_float(lhs):
        lhs, rhs = total_order(lhs), total_order(rhs)
    return np.asarray(COMPARISONS[instruction["direction"]](lhs, rhs), np.bool_)


@definition("select")
def _select(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    chosen, on_true, on_false = operands
    return np.where(chosen, on_true, on_false)


@definition("clamp")
def _clamp(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """minimum(maximum(x, low), high): NaN stays NaN; `high` where it is below `low`."""
    low, x, high = operands
    return np.asarray(np.minimum(np.maximum(x, low), high), x.dtype)


@definition("convert")
def _convert(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Converts floats to integers towards zero, saturating, NaN to 0; and to pred by whether a value is not zero.

    `overflow`, of conversions to float16, names the result of finite numbers that are too large for it.
    """
    (x,) = operands
    target = instruction.array_shape.dtype
    if instruction.get("overflow") is not None:
        return nearest_half(x, instruction["overflow"])
    if target == np.bool_:
        return np.asarray(x != 0)
    if x.dtype in COMPLEX and target not in COMPLEX:
        x = x.real
    if target.kind in "iu" and is_float(x):
        return _saturated(computing(x), target)
    return converted(np.array(x), target)


def _saturated(x: np.ndarray, target: np.dtype) -> np.ndarray:
    limits = np.iinfo(target)
    whole = np.trunc(np.where(np.isnan(x), 0, x)).astype(np.float64)
    above, below = whole >= float(limits.max), whole <= float(limits.min)
    inside = np.where(above | below, 0.0, whole).astype(target)
    return np.where(above, target.type(limits.max), np.where(below, target.type(limits.min), inside))


@definition("bitcast-convert")
def _bitcast_convert(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Reinterprets bits: a narrower type adds a last dimension of parts, the lowest first; a wider one removes it."""
    (x,), shape = operands, instruction.array_shape
    if x.dtype.itemsize == shape.dtype.itemsize:
        return x.view(shape.dtype)
    return np.ascontiguousarray(x).reshape(-1).view(shape.dtype).reshape(shape.dimensions)
