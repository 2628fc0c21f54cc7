"""Recognises arrays all of whose elements are one known value."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction
from engine.ops.floats import is_float


def splat_value(instruction: Instruction) -> np.ndarray | None:
    """The value (a rank-0 array) of a constant of one element or a broadcast of one, None otherwise."""
    while instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    if instruction.opcode != "constant" or instruction.array_shape.elements != 1:
        return None
    value: np.ndarray = instruction["literal"].reshape(())
    return value


def is_splat_of(instruction: Instruction, number: complex) -> bool:
    """Whether all elements equal a number; for zero the sign does not matter."""
    value = splat_value(instruction)
    return value is not None and bool(value == number)


def is_positive_zero(instruction: Instruction) -> bool:
    """Whether all elements are +0, or the integer zero."""
    value = splat_value(instruction)
    return value is not None and not any(value.tobytes())


def is_negative_zero(instruction: Instruction) -> bool:
    """Whether all elements are the floating-point value -0."""
    value = splat_value(instruction)
    return value is not None and is_float(value) and bool(value == 0) and bool(np.signbit(value.astype(np.float64)))


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two values have the same dtype and bits, NaNs and signed zeros included."""
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()
