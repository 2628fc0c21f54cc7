"""Immutable tables of byte offsets."""

from __future__ import annotations

import numpy as np

GROUP = 16
"""Contiguous rows that can be read together: a multiple of the lanes of all processors."""


class Offsets:
    """Byte offsets, int64 [count]; two objects are equal if their numbers are."""

    __slots__ = ("table",)

    def __init__(self, table: np.ndarray) -> None:
        self.table = np.ascontiguousarray(table, np.int64)
        self.table.flags.writeable = False

    def __len__(self) -> int:
        return len(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and np.array_equal(self.table, other.table)

    def __hash__(self) -> int:
        return hash(self.table.tobytes())

    def __repr__(self) -> str:
        """Runs of evenly spaced offsets as begin:end:step."""
        steps = np.diff(self.table)
        if len(steps) and (steps == steps[0]).all():
            return f"[{self.table[0]}:{self.table[-1] + steps[0]}:{steps[0]}]"
        shown = ", ".join(map(str, self.table[:6].tolist()))
        return f"[{shown}, ... {len(self)}]" if len(self) > 6 else f"[{shown}]"


def table(*axes: tuple[int, int]) -> np.ndarray:
    """Byte offsets, int64 [product of extents], of all indices of (extent, stride) axes, last axis fastest."""
    offsets = np.zeros(1, np.int64)
    for extent, stride in axes:
        offsets = (offsets[:, None] + np.arange(extent, dtype=np.int64) * stride).reshape(-1)
    return offsets


def axes_of(offsets: np.ndarray) -> list[tuple[int, int]] | None:
    """The fewest (extent, stride) axes whose `table`, from the first offset on, are these offsets; None without any."""
    axes, rest = list[tuple[int, int]](), offsets - offsets[0]
    while len(rest) > 1:
        stride = int(rest[1])
        extent = next((n for n in range(2, len(rest)) if rest[n] != n * stride), len(rest))
        axes.insert(0, (extent, stride))
        rest = rest[::extent]
    return axes if np.array_equal(table(*axes), offsets - offsets[0]) else None


def run_of(offset_a: np.ndarray, element_bytes: int) -> int:
    """The length of A's contiguous runs along k; the greatest common divisor if their lengths differ."""
    steps, constant = steps_of(offset_a)
    if constant and len(steps):
        return len(offset_a) if steps[0] == element_bytes else 1
    breaks = np.flatnonzero(steps != element_bytes) + 1
    return int(np.gcd.reduce(breaks, initial=len(offset_a))) if len(offset_a) else 0


def rows_together(row_a: np.ndarray, element_bytes: int) -> int:
    """Contiguity of A's rows: 1 if all are contiguous, GROUP if aligned groups of GROUP rows are, else 0."""
    steps, constant = steps_of(row_a)
    if constant:
        return int(len(steps) > 0 and steps[0] == element_bytes)
    together = steps == element_bytes
    if not bool(np.all(together[np.arange(1, len(row_a)) % GROUP != 0])):
        return 0
    return 1 if bool(np.all(together)) else GROUP


def steps_of(offsets: np.ndarray) -> tuple[np.ndarray, bool]:
    """The steps between neighbours, and whether they are equal."""
    steps = offsets[1:] - offsets[:-1]
    return steps, len(steps) == 0 or bool((steps == steps[0]).all())
