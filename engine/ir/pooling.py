"""Windows of max pooling whose gradients write each element once."""

from __future__ import annotations

from math import prod

from engine.ir.attributes import Window
from engine.ir.shape import Shape

DIRECTIONS = ("GE", "GT", "LE", "LT", "UGE")
"""Comparisons that keep the element selected before: HLO's directions, and UGE, which is "not LT" of floats."""
MOST_POSITIONS = 1 << 14
"""Elements of a window without overlaps, whose offsets have 8 bytes each: they stay in the second-level cache."""
MOST_COLUMNS = 7
"""Most columns of a window that overlaps others: each number of columns has its own code."""
FEWEST_CHANNELS = 2
"""Fewest channels if windows skip elements: with one, elements near the end of a row are computed one by one."""
MOST_BYTES = 1 << 19
"""Bytes of selected positions: they have to stay in the second-level cache."""


def spatial_dimensions(window: Window) -> range:
    """The dimensions from the first with a window to the last."""
    windowed = [d for d, w in enumerate(window) if not w.is_trivial]
    return range(windowed[0], windowed[-1] + 1) if windowed else range(0)


def is_apart(source: Shape, window: Window) -> bool:
    """Whether windows do not overlap, along at most three consecutive dimensions."""
    spatial, pairs = spatial_dimensions(window), zip(source.dimensions, window, strict=True)
    apart = all((w.stride >= w.size or n == 1) and w.window_dilation == w.base_dilation == 1 for n, w in pairs)
    return apart and 1 <= len(spatial) <= 3 and prod(w.size for w in window) <= MOST_POSITIONS


def positions_bytes(source: Shape, window: Window) -> int:
    """Bytes of the positions that the rows of windows with an element have selected."""
    spatial = spatial_dimensions(window)
    rows = 1 if len(spatial) == 1 else -(-window[spatial[0]].size // window[spatial[0]].stride)
    return 4 * rows * prod(source.dimensions[spatial[-1] :])


def gathers_pools(source: Shape, window: Window) -> bool:
    """Whether each element can gather from the windows that contain it: `source` has a value for each window."""
    spatial = spatial_dimensions(window)
    if not 1 <= len(spatial) <= 2 or any(w.window_dilation != 1 or w.base_dilation != 1 for w in window):
        return False
    wide = window[spatial[-1]]
    if wide.size > MOST_COLUMNS or positions_bytes(source, window) > MOST_BYTES:
        return False
    return wide.stride == 1 or prod(source.dimensions[spatial.stop :]) >= FEWEST_CHANNELS
