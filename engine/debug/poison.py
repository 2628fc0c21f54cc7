"""Contents of unwritten memory: NaN in the first run, loud numbers of either sign in the second.

Results computed from memory that a codelet should not read differ between the two; memory that it leaves alone keeps
the poison of each run. The NaN is a signaling one: arithmetic makes a quiet NaN of it, so that not even NaN + 1
passes for memory left alone.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

import numpy as np

from engine.debug.cells import cell_type
from engine.ir.shape import Shape

SIGNALING = {2: 0xFDFF, 4: 0xFFBFFFFF, 8: 0xFFF7FFFFFFFFFFFF}
"""NaN of each size; bfloat16 has the upper half of a float32's."""
BFLOAT16 = 0xFFBF
LOUD_TOPS = np.array([0x7B, 0xFB], np.uint8)
"""The highest bytes of loud floating-point numbers: finite, near the largest magnitude, of either sign."""

FURTHEST, STRIDE = 1 << 12, 613
"""Largest offset of a buffer's poison among the loud numbers, and its stride per buffer."""


class Poison(IntEnum):
    """The two runs of a compute set, by the contents of unwritten memory."""

    NAN = 0
    LOUD = 1


def poison(kind: Poison, shape: Shape, cells: int, number: int) -> np.ndarray:
    """`cells` cells of poison for an array of this shape: read-only, of its `cell_type`.

    `number` is the buffer's: loud poison that is copied from one buffer to another shows there.
    """
    start = number * STRIDE % FURTHEST
    kept = _pool(kind, cell_type(shape).itemsize, family_of(shape), 1 << (cells + FURTHEST).bit_length())
    return kept[start : start + cells]


def poison_bytes(kind: Poison, size: int) -> np.ndarray:
    """Poison for untyped memory, guards and scratch: read-only uint8 [size]."""
    return _pool(kind, 1, "u", 1 << (size + FURTHEST).bit_length())[:size]


def family_of(shape: Shape) -> str:
    """Floating point ("f"), bfloat16 ("V"), signed ("i") or unsigned integers ("u"), or booleans ("b")."""
    return "f" if shape.dtype.kind == "c" else shape.dtype.kind


@cache
def _pool(kind: Poison, size: int, family: str, cells: int) -> np.ndarray:
    made = _nan(size, family, cells) if kind == Poison.NAN else _loud(size, family, cells).view(f"u{size}")
    made.flags.writeable = False
    return made


def _nan(size: int, family: str, cells: int) -> np.ndarray:
    """Cells of NaN, or in types without it of all bits set: -1, or the greatest number."""
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
