"""Gradients of max pooling by their definition, and by a codelet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import cast

import numpy as np

from engine.codelets.language.encoded import Encoded
from engine.ir.attributes import Window
from engine.ir.shape import shape_of
from engine.program.buffer import Address
from engine.program.work.base import Array
from engine.program.work.select_and_scatter import SelectAndScatterWork
from tests.codelets.guarded_scratch import GuardedScratch
from tests.runtime.ranges import even_ranges

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


def gradient(
    encode: Callable[[SelectAndScatterWork], Encoded],
    operand: np.ndarray,
    source: np.ndarray,
    init: float,
    window: Window,
    direction: str,
    workers: int,
) -> np.ndarray:
    """Runs the codelet of an encoder with guards around the target and the scratch."""
    guarded = np.full(operand.size + 128, 77, operand.dtype)
    target, initial = guarded[64:-64], np.array([init], np.float32)
    arrays = (Array(cast(Address, each.ctypes.data), shape_of(each)) for each in (operand, source))
    places = (cast(Address, each.ctypes.data) for each in (initial, target))
    work = SelectAndScatterWork(*arrays, *places, window, direction)
    encoded = encode(work)
    scratch = GuardedScratch(encoded.scratch_bytes)
    for lo, hi in reversed(even_ranges(work.unit_count, workers)):
        encoded.codelet(encoded.words.ctypes.data, lo, hi, scratch.address)
    scratch.check(encoded.scratch)
    assert np.all(guarded[:64] == 77) and np.all(guarded[-64:] == 77)
    return target.reshape(operand.shape)
