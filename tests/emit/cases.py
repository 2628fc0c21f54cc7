"""Operations that make sense for each element type, and values that are hard for them."""

from __future__ import annotations

import numpy as np

from engine.ir import Module, Shape
from engine.ir.builder import Builder

SIGNED = ("s8", "s16", "s32", "s64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64")
NUMBERS = INTEGERS + FLOATS
ALL = (*NUMBERS, "pred")

EXACT_UNARY = {
    "abs": NUMBERS,
    "ceil": FLOATS,
    "copy": ALL,
    "count-leading-zeros": INTEGERS,
    "floor": FLOATS,
    "is-finite": FLOATS,
    "negate": NUMBERS,
    "not": (*INTEGERS, "pred"),
    "popcnt": INTEGERS,
    "round-nearest-afz": FLOATS,
    "round-nearest-even": FLOATS,
    "sign": NUMBERS,
    "sqrt": FLOATS,
}
EXACT_BINARY = {
    "add": ALL,
    "and": (*INTEGERS, "pred"),
    "divide": NUMBERS,
    "maximum": ALL,
    "maximum-number": FLOATS,
    "minimum": ALL,
    "multiply": ALL,
    "or": (*INTEGERS, "pred"),
    "remainder": NUMBERS,
    "shift-left": INTEGERS,
    "shift-right-arithmetic": INTEGERS,
    "shift-right-logical": INTEGERS,
    "subtract": NUMBERS,
    "xor": (*INTEGERS, "pred"),
}
ROUNDED = {
    # The greatest distance from the exact value, in units in the last place, for f32 and for f64.
    "atan2": (2, 3),
    "cbrt": (2, 4),
    "cosine": (2, 2),
    "erf": (6, 2),
    "erfc": (8, 4),
    "exponential": (3, 2),
    "exponential-minus-one": (2, 3),
    "log": (3, 2),
    "log-plus-one": (2, 3),
    "logistic": (4, 4),
    "power": (2, 3),
    "rsqrt": (2, 2),
    "sine": (2, 2),
    "tan": (3, 4),
    "tanh": (6, 3),
}
OTHER = tuple(
    (
        "bitcast-convert clamp compare complex convert imag power random-bits real reduce-precision select "
        "stochastic-convert"
    ).split()
)
SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan)


def hard_values(rng: np.random.Generator, element_type: str, count: int) -> np.ndarray:
    """Numbers of every magnitude, extremes, and for floats NaN, infinities, both zeros and denormals."""
    dtype = Shape(element_type).dtype
    if element_type == "pred":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        return _hard_integers(rng, dtype, count)
    bits = rng.integers(0, 256, (count, dtype.itemsize), np.uint8).reshape(-1).view(dtype)
    denormal = rng.integers(1, 100, count).astype(f"u{dtype.itemsize}").view(dtype)
    kind = rng.integers(0, 10, count)
    with np.errstate(all="ignore"):
        wide = bits.astype(np.float64)
        # A signalling NaN would make NumPy warn wherever it goes.
        wide = np.where(np.isnan(wide), np.nan, wide)
        choices = [wide, rng.normal(size=count) * 4, denormal.astype(np.float64)]
        found = np.select([kind < 3, kind < 7, kind < 8], choices, rng.choice(SPECIAL_FLOATS, count))
        return found.astype(dtype)


def _hard_integers(rng: np.random.Generator, dtype: np.dtype, count: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    any_bits = rng.integers(0, 256, (count, dtype.itemsize), np.uint8).reshape(-1).view(dtype)
    small = rng.integers(0, 70, count).astype(dtype)
    extreme = rng.choice(np.array([limits.min, limits.max, 0, 1, limits.max - 1], dtype), count)
    minus_one = np.full(count, ~np.zeros((), dtype), dtype)
    kind = rng.integers(0, 10, count)
    return np.select([kind < 3, kind < 7, kind < 9], [any_bits, small, extreme], minus_one)


def one_operation(opcode: str, arrays: list[np.ndarray], types: list[str], **attributes: object) -> Module:
    """A module that applies one operation to its parameters."""
    builder = Builder()
    shape = arrays[0].shape
    parameters = [builder.parameter(t, shape) for t in types]
    builder.elementwise(opcode, *parameters, **attributes)
    return builder.module()
