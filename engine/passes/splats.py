"""Recognises arrays all of whose elements are one known value."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction


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
    return value is not None and not np.any(value.view(_bits(value)))


def is_negative_zero(instruction: Instruction) -> bool:
    """Whether all elements are the floating-point value -0."""
    value = splat_value(instruction)
    return value is not None and _is_float(value) and bool(value == 0) and bool(np.signbit(value.astype(np.float64)))


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two values have the same dtype and bits, NaNs and signed zeros included."""
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _bits(value: np.ndarray) -> np.dtype:
    return (
        np.dtype((np.uint8, value.dtype.itemsize)) if value.dtype.itemsize > 8 else np.dtype(f"u{value.dtype.itemsize}")
    )


def _is_float(value: np.ndarray) -> bool:
    return np.dtype(value.dtype).kind in "fV" and value.dtype.itemsize in (2, 4, 8)
