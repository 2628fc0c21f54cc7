"""select-and-scatter against its definition, for pooling windows in both layouts and for odd ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from engine.codelets.language.record import block
from engine.codelets.pooling.select_and_scatter import (
    DIRECTIONS,
    SCRATCH,
    encode_select_and_scatter,
    select_and_scatter,
)
from engine.errors import InternalError, UnsupportedOperation
from engine.ir.attributes import Window, WindowDimension
from engine.ir.shape import shape_of
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


def run(
    operand: np.ndarray, source: np.ndarray, init: np.generic, window: Window, direction: str, workers: int
) -> np.ndarray:
    target = np.full_like(operand, 77)
    initial = np.array([init], operand.dtype)
    parts, units = encode_select_and_scatter(
        (shape_of(operand), operand.ctypes.data),
        (shape_of(source), source.ctypes.data),
        initial.ctypes.data,
        target.ctypes.data,
        window,
    )
    parameters = block(*parts).words
    scratch = GuardedScratch(SCRATCH.bytes)
    codelet = select_and_scatter(direction, shape_of(operand).element_type)
    for lo, hi in reversed(even_ranges(units, workers)):
        codelet(parameters.ctypes.data, lo, hi, scratch.address)
    scratch.check(SCRATCH)
    return target


def compare(operand: np.ndarray, window: Window, direction: str, seed: int, init: float = 0.0) -> None:
    rng = np.random.default_rng(seed)
    source = rng.standard_normal(output_shape(operand.shape, window)).astype(operand.dtype)
    expected = oracle(operand, source, operand.dtype.type(init), window, direction)
    for workers in (1, 2, 3):
        received = run(operand, source, operand.dtype.type(init), window, direction, workers)
        assert received.tobytes() == expected.tobytes()


TRIVIAL = WindowDimension(1)
POOL = WindowDimension(2, 2)
OVERLAP = WindowDimension(3, 2, 1, 1)
NAMED = {
    "NHWC": ((3, 8, 6, 5), (TRIVIAL, POOL, POOL, TRIVIAL)),
    "NHWC many channels": ((2, 4, 5, 300), (TRIVIAL, OVERLAP, OVERLAP, TRIVIAL)),
    "NCHW": ((2, 3, 9, 7), (TRIVIAL, TRIVIAL, OVERLAP, POOL)),
    "one image": ((1, 6, 6, 4), (TRIVIAL, POOL, POOL, TRIVIAL)),
    "NWC": ((4, 11, 3), (TRIVIAL, WindowDimension(4, 3, 0, 2), TRIVIAL)),
    "NDHWC": ((2, 4, 5, 4, 3), (TRIVIAL, POOL, OVERLAP, POOL, TRIVIAL)),
    "window over the batch": ((6, 5), (OVERLAP, TRIVIAL)),
    "everything has a window": ((6, 7), (POOL, OVERLAP)),
    "dilated": ((2, 9, 4), (TRIVIAL, WindowDimension(3, 1, 1, 1, window_dilation=2), TRIVIAL)),
    "windows in the padding": ((2, 3, 2), (TRIVIAL, WindowDimension(2, 2, 4, 4), TRIVIAL)),
    "cropped": ((2, 9, 2), (TRIVIAL, WindowDimension(2, 2, -1, -2), TRIVIAL)),
    "vector": ((13,), (WindowDimension(3, 3, 1, 1),)),
    "no window": ((3, 4), (TRIVIAL, TRIVIAL)),
    "scalar": ((), ()),
    "no images": ((0, 4, 4, 2), (TRIVIAL, POOL, POOL, TRIVIAL)),
    "no channels": ((2, 4, 4, 0), (TRIVIAL, POOL, POOL, TRIVIAL)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMED)
def test_windows(name: str, dtype: type) -> None:
    dimensions, window = NAMED[name]
    # few different values, so that ties decide
    operand = np.random.default_rng(1).integers(-2, 3, dimensions).astype(dtype)
    compare(operand, window, "GE", seed=2)
    compare(operand, window, "GE", seed=3, init=1.5)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_directions_ties_and_special_values(direction: str) -> None:
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, np.float32(3.4e38)], np.float32)
    operand = np.random.default_rng(4).choice(values, (3, 9, 8, 6))
    for window in ((TRIVIAL, POOL, POOL, TRIVIAL), (TRIVIAL, OVERLAP, OVERLAP, TRIVIAL)):
        compare(operand, window, direction, seed=5)
        compare(
            np.ascontiguousarray(operand.transpose(0, 3, 1, 2)),
            (window[0], window[3], *window[1:3]),
            direction,
            6,
        )


def test_random_windows() -> None:
    rng = np.random.default_rng(7)
    for trial in range(150):
        rank = int(rng.integers(1, 5))
        dimensions = tuple(int(n) for n in rng.integers(1, 8, rank))
        window = tuple(
            TRIVIAL
            if rng.random() < 0.4
            else WindowDimension(
                int(rng.integers(1, min(n, 3) + 1)), *(int(v) for v in rng.integers([1, 0, 0], [4, 3, 3]))
            )
            for n in dimensions
        )
        operand = rng.integers(-3, 4, dimensions).astype(np.float32)
        compare(operand, window, DIRECTIONS[trial % len(DIRECTIONS)], seed=trial)


def test_what_does_not_fit_is_refused() -> None:
    operand, source = np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32)
    with pytest.raises(InternalError, match="source"):
        encode_select_and_scatter((shape_of(operand), 1), (shape_of(source), 1), 1, 1, (TRIVIAL, POOL))
    with pytest.raises(UnsupportedOperation, match="Nearest"):
        select_and_scatter("EQ", "f32")
    with pytest.raises(UnsupportedOperation, match="Nearest"):
        select_and_scatter("GE", "s32")
