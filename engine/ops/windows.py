"""The view of each window's elements, with strides and dilations, for the windowed operations."""

from __future__ import annotations

import numpy as np

from engine.ir import PaddingDimension, Window
from engine.ops.shaping import padded


def padded_base(x: np.ndarray, value: np.ndarray, window: Window) -> np.ndarray:
    """The base with the window's dilation gaps and padding filled with the value."""
    config = tuple(PaddingDimension(d.padding_low, d.padding_high, d.base_dilation - 1) for d in window)
    return padded(x, value, config)


def window_view(base: np.ndarray, counts: list[int], window: Window) -> np.ndarray:
    """A read-only view [counts..., sizes...] of the padded base."""
    strides = [s * d.stride for s, d in zip(base.strides, window, strict=True)]
    inner = [s * d.window_dilation for s, d in zip(base.strides, window, strict=True)]
    sizes = [d.size for d in window]
    return np.lib.stride_tricks.as_strided(base, [*counts, *sizes], [*strides, *inner], writeable=False)
