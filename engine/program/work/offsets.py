"""Immutable tables of byte offsets."""

from __future__ import annotations

import numpy as np


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
