"""Elementwise operations of one operand."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from engine.ir import Instruction
from engine.ops.floats import as_unsigned, computing, is_complex, is_float, widest
from engine.ops.registry import definition


def _cube_root(x: np.ndarray) -> np.ndarray:
    return np.power(x, 1.0 / 3.0) if is_complex(x) else np.cbrt(x)


TRANSCENDENTAL: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "cbrt": _cube_root,
    "sine": np.sin,
    "cosine": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "logistic": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "erfc": np.vectorize(math.erfc, otypes=[np.float64]),
}


@definition(*TRANSCENDENTAL)
def _transcendental(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Computes in double precision and rounds once."""
    (x,) = operands
    return np.asarray(TRANSCENDENTAL[instruction.opcode](widest(x))).astype(x.dtype)


def _half_away_from_zero(x: np.ndarray) -> np.ndarray:
    whole = np.floor(np.abs(x))
    return np.copysign(whole + (np.abs(x) - whole >= 0.5), x)


ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round-nearest-even": np.rint,
    "round-nearest-afz": _half_away_from_zero,
}


@definition(*ROUNDING)
def _rounding(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    (x,) = operands
    return np.asarray(ROUNDING[instruction.opcode](computing(x))).astype(x.dtype)


EXACT: dict[str, np.ufunc] = {"negate": np.negative, "abs": np.abs, "not": np.invert, "is-finite": np.isfinite}


@definition(*EXACT)
def _exact(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Computes without rounding. abs is the real magnitude of complex operands, and of the least integer the integer
    itself; not is logical for pred, bitwise for integers."""
    return np.asarray(EXACT[instruction.opcode](operands[0]))


@definition("sign")
def _sign(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Returns the sign, or signed zeros and NaN as they are; for complex numbers x / abs(x)."""
    (x,) = operands
    if is_complex(x):
        return np.where(x == 0, x.dtype.type(0), x / np.abs(x)).astype(x.dtype)
    if is_float(x):
        wide = computing(x)
        return np.where(wide == 0, wide, np.sign(wide)).astype(x.dtype)
    return np.asarray(np.sign(x))


@definition("popcnt")
def _population_count(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    (x,) = operands
    return np.asarray(np.bitwise_count(as_unsigned(x))).astype(x.dtype)


@definition("count-leading-zeros")
def _count_leading_zeros(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    (x,) = operands
    bits = as_unsigned(x)
    width = 8 * x.dtype.itemsize
    for distance in (1, 2, 4, 8, 16, 32):
        if distance < width:
            bits = bits | (bits >> bits.dtype.type(distance))
    return np.asarray(width - np.bitwise_count(bits)).astype(x.dtype)


@definition("real")
def _real(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return np.array(operands[0].real)


@definition("imag")
def _imaginary(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    (x,) = operands
    return np.array(x.imag) if is_complex(x) else np.zeros_like(x)


@definition("copy", "optimization-barrier")
def _copy(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    return operands[0]


@definition("reduce-precision")
def _reduce_precision(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Rounds the mantissa to nearest even; with fewer exponent bits, overflow gives infinity and underflow 0."""
    (x,) = operands
    own = ml_dtypes.finfo(x.dtype)
    wide = widest(x)
    result = widest(_rounded_mantissa(x, own.nmant - instruction["mantissa_bits"]))
    if instruction["exponent_bits"] < own.nexp:
        bias = 2 ** (instruction["exponent_bits"] - 1) - 1
        result = np.where(np.abs(result) >= 2.0 ** (bias + 1), np.copysign(np.inf, result), result)
        result = np.where(np.abs(result) < 2.0 ** (1 - bias), np.copysign(0.0, result), result)
    without_digits = np.copysign(np.inf, wide) if instruction["mantissa_bits"] == 0 else wide
    return np.where(np.isnan(wide), without_digits, result).astype(x.dtype)


def _rounded_mantissa(x: np.ndarray, dropped: int) -> np.ndarray:
    """Rounds to nearest even, without the last `dropped` bits."""
    if dropped <= 0:
        return x
    bits = as_unsigned(x)
    one, shift = bits.dtype.type(1), bits.dtype.type(dropped)
    half = (one << (shift - one)) - one
    return (((bits + half + ((bits >> shift) & one)) >> shift) << shift).view(x.dtype)
