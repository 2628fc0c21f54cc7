"""Gradients of max pooling by their definition."""

from __future__ import annotations

from itertools import product

import numpy as np

from engine.ir.attributes import Window

COMPARE = {
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
    "UGE": lambda kept, candidate: not kept < candidate,
}


def oracle(operand: np.ndarray, source: np.ndarray, init: np.generic, window: Window, direction: str) -> np.ndarray:
    """The definition, one window at a time."""
    result = np.full_like(operand, init)
    for position in np.ndindex(source.shape):
        chosen = None
        for place in product(*(range(w.size) for w in window)):
            at = tuple(
                p * w.stride - w.padding_low + k * w.window_dilation
                for p, k, w in zip(position, place, window, strict=True)
            )
            if all(0 <= a < size for a, size in zip(at, operand.shape, strict=True)):
                if chosen is None or not COMPARE[direction](operand[chosen], operand[at]):
                    chosen = at
        if chosen is not None:
            result[chosen] += source[position]
    return result


def output_shape(dimensions: tuple[int, ...], window: Window) -> tuple[int, ...]:
    return tuple(
        (n + w.padding_low + w.padding_high - (w.size - 1) * w.window_dilation - 1) // w.stride + 1
        for n, w in zip(dimensions, window, strict=True)
    )
