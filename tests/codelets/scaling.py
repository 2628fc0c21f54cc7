"""The smallest codelet, for tests of how codelets are compiled and kept."""

from __future__ import annotations

from engine.codelets.language.build import codelet
from engine.codelets.language.memory import load_f32, load_i64, store_f32


@codelet
def scale(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """y[i] = 3 * x[i] for lo <= i < hi."""
    x, y = load_i64(parameters), load_i64(parameters + 8)
    for i in range(lo, hi):
        store_f32(y + 4 * i, 3 * load_f32(x + 4 * i))
