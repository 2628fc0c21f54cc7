"""What lies in memory that nobody has written: NaN the first time, loud numbers of either sign the second time.

Whatever a codelet makes of memory that it should not look at differs between the two; what it leaves alone keeps the
one poison in one run and the other in the other. The NaN is a signaling one: arithmetic makes a quiet NaN of it, so
that not even NaN + 1 passes for memory left alone.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

import numpy as np

from engine.debug.cells import cell_type
from engine.ir.shape import Shape

SIGNALING = {2: 0xFDFF, 4: 0xFFBFFFFF, 8: 0xFFF7FFFFFFFFFFFF}
"""NaN of each size; bfloat16 has the upper half of a float's."""
BFLOAT16 = 0xFFBF
LOUD_TOPS = np.array([0x7B, 0xFB], np.uint8)
"""The highest bytes of loud floating-point numbers: finite, about as large as they get, of either sign."""

FURTHEST, STRIDE = 1 << 12, 613
"""Where the poison of different buffers begins among the loud numbers."""


class Poison(IntEnum):
    """Which of the two runs."""

    NAN = 0
    LOUD = 1


def poison(kind: Poison, shape: Shape, cells: int, number: int) -> np.ndarray:
    """So many cells of poison for an array of this type: an array nobody may write to.

    `number` is the buffer's: loud poison that is copied from one buffer to another shows there.
    """
    start = number * STRIDE % FURTHEST
    kept = _pool(kind, cell_type(shape).itemsize, family_of(shape), 1 << (cells + FURTHEST).bit_length())
    return kept[start : start + cells]


def poison_bytes(kind: Poison, size: int) -> np.ndarray:
    """Poison for memory of no type: guards and scratch."""
    return _pool(kind, 1, "u", 1 << (size + FURTHEST).bit_length())[:size]


def family_of(shape: Shape) -> str:
    """Floating point ("f"), bfloat16 ("V"), integers with a sign ("i") or without ("u"), or truth ("b")."""
    return "f" if shape.dtype.kind == "c" else shape.dtype.kind


@cache
def _pool(kind: Poison, size: int, family: str, cells: int) -> np.ndarray:
    made = _nan(size, family, cells) if kind == Poison.NAN else _loud(size, family, cells).view(f"u{size}")
    made.flags.writeable = False
    return made


def _nan(size: int, family: str, cells: int) -> np.ndarray:
    """NaN, or where there is none all bits set: -1, or the greatest number."""
    value = SIGNALING[size] if family == "f" else BFLOAT16 if family == "V" else (1 << 8 * size) - 1
    return np.full(cells, value, f"u{size}")


def _loud(size: int, family: str, cells: int) -> np.ndarray:
    """Bytes of random numbers, the same in each process. Integers stay small, as codelets may use them as indices."""
    generator = np.random.default_rng(size)
    if family == "b":
        return generator.integers(0, 2, cells, np.uint8)
    if family in "fV":
        made = generator.integers(0, 0xFF, (cells, size), np.uint8)
        made[:, -1] = generator.choice(LOUD_TOPS, cells)
        return made.reshape(-1)
    numbers = generator.integers(2, 121, cells)
    if family == "i":
        numbers *= generator.choice([-1, 1], cells)
    return numbers.astype(f"i{size}").view(np.uint8)
