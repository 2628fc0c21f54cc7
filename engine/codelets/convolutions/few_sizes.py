"""Sizes of convolutions with few output features, in a file that lowering reads without loading the compiler."""

from __future__ import annotations

from typing import NamedTuple

from engine.machine_code.processor import lanes, registers

LANES = lanes()
VECTOR = 4 * LANES
MOST_FEATURES = 4
RUNS = (7, 5, 3, 2)
"""Rows of runs of taps that have kernels; other taps are runs of one."""
MOST_FACTORS = 9 if registers() == 32 else 4
"""Elements of the kernel in registers: taps of a run by output features."""
MOST_ROWS = 8
"""Rows of outputs whose sums are in registers at a time."""
_SUMS = {1: 16, 2: 16, 3: 18, 4: 24} if registers() == 32 else {1: 6, 2: 8, 3: 6, 4: 8}
_VECTORS = {1: 4, 2: 2, 3: 2, 4: 2} if registers() == 32 else {1: 3, 2: 2, 3: 1, 4: 1}


class RowRun(NamedTuple):
    """Taps in neighbouring rows of the same column and input feature, and output features."""

    rows: int
    features: int


def most_sums(features: int) -> int:
    """Vectors of sums of a feature that are in registers at a time."""
    return _SUMS[features] // features


def most_vectors(features: int) -> int:
    """Vectors of columns whose sums are in registers at a time."""
    return _VECTORS[features]


def most_rows(features: int, vectors: int) -> int:
    """Most rows of a kernel whose rows have `vectors` vectors each."""
    return min(MOST_ROWS, most_sums(features) // vectors)


def whole_vectors(elements: int) -> int:
    """Elements rounded up to whole vectors."""
    return -(-elements // LANES) * LANES
