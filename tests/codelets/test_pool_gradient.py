"""Gradients of max pooling without overlaps, against the definition of select-and-scatter, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.pooling.pool_gradient import encoded_pool_gradient
from engine.ir.attributes import Window, WindowDimension
from engine.ir.pooling import DIRECTIONS, is_apart
from engine.ir.shape import NUMPY_TYPES, Shape
from tests.codelets.pooling import gradient, oracle, output_shape

TRIVIAL, POOL = WindowDimension(1), WindowDimension(2, 2)
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 2.0, 3.4e38], np.float32)


def compare(operand: np.ndarray, window: Window, direction: str, init: float = 0.0) -> None:
    rng = np.random.default_rng(operand.size)
    source = rng.standard_normal(output_shape(operand.shape, window)).astype(np.float32)
    expected = oracle(operand, source, np.float32(init), window, direction)
    for workers in (1, 3):
        found = gradient(encoded_pool_gradient, operand, source, init, window, direction, workers)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("channels", [*range(1, 21), 33, 64])
def test_usual_pooling(channels: int) -> None:
    """Whole windows; a row and a column that no window covers; windows that reach over the edge."""
    rng = np.random.default_rng(channels)
    for height, width in ((4, 8), (5, 7), (2, 2), (1, 1)):
        operand = rng.integers(-2, 3, (3, height, width, channels)).astype(np.float32)
        compare(operand, (TRIVIAL, POOL, POOL, TRIVIAL), "GE")
        same = tuple(WindowDimension(2, 2, 0, n % 2) for n in (height, width))
        compare(operand, (TRIVIAL, *same, TRIVIAL), "GE")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pooling_of_16_bit_floats(kind: str) -> None:
    """The bits of a gradient in f32, rounded once; rows, columns and channels in part."""
    dtype, rng = NUMPY_TYPES[kind], np.random.default_rng(1)
    for channels, height, width in ((6, 4, 8), (1, 5, 7), (37, 3, 4), (2, 4, 30), (3, 2, 29), (12, 4, 8)):
        operand = rng.integers(-2, 3, (3, height, width, channels)).astype(np.float32)
        operand[0, 0, 0, 0], operand[1, 1, 1, -1] = np.nan, -np.inf
        for edge in (0, 1):
            window = (TRIVIAL, *[WindowDimension(2, 2, 0, edge)] * 2, TRIVIAL)
            source = rng.standard_normal(output_shape(operand.shape, window)).astype(np.float32)
            expected = oracle(operand, source, np.float32(0), window, "GE").astype(dtype)
            found = gradient(encoded_pool_gradient, operand.astype(dtype), source, 0.0, window, "GE", 2)
            assert found.tobytes() == expected.tobytes()


@pytest.mark.sample(30)
@pytest.mark.parametrize("seed", range(120))
def test_any_window_that_does_not_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    windowed, before, after = (int(n) for n in rng.integers([1, 0, 0], [4, 3, 3]))
    sizes = [int(n) for n in rng.integers(1, 9 if windowed < 3 else 6, windowed)]
    window = []
    for size in sizes:
        places, gap = int(rng.integers(1, 4)), int(rng.choice([0, 0, 1, 2]))
        low = int(rng.integers(-1, 4))
        high = int(rng.integers(max(-1, places - size - low), max(4, places - size - low + 1)))
        window.append(WindowDimension(places, places + gap, low, high))
    outer, inner = rng.integers(1, 4, before), rng.integers(1, 21, after)
    dimensions = tuple(int(n) for n in (*outer, *sizes, *inner))
    window = [TRIVIAL] * before + window + [TRIVIAL] * after
    values = SPECIAL if seed % 2 else np.arange(-2, 3).astype(np.float32)
    operand = rng.choice(values, dimensions)
    if is_apart(Shape("f32", output_shape(dimensions, tuple(window))), tuple(window)):
        compare(operand, tuple(window), DIRECTIONS[seed % len(DIRECTIONS)], float(rng.choice([0.0, -0.0, 1.5])))
    else:
        assert all(w == TRIVIAL for w in window)


def test_empty_arrays() -> None:
    window = (TRIVIAL, POOL, POOL, TRIVIAL)
    for dimensions in ((0, 4, 4, 2), (2, 4, 4, 0)):
        compare(np.zeros(dimensions, np.float32), window, "GE")


def test_no_window_at_all_leaves_the_initial_value() -> None:
    compare(np.ones((2, 1, 3), np.float32), (TRIVIAL, POOL, TRIVIAL), "GE", init=1.5)


@pytest.mark.parametrize(
    "window",
    [
        (TRIVIAL, WindowDimension(3, 2), TRIVIAL),
        (TRIVIAL, WindowDimension(2, 2, window_dilation=2), TRIVIAL),
        (TRIVIAL, TRIVIAL, TRIVIAL),
        (POOL, TRIVIAL, TRIVIAL, POOL),
        (WindowDimension(20_000, 20_000),),
    ],
    ids=["overlaps", "dilated", "none", "far apart", "too many places"],
)
def test_other_windows_are_expanded(window: Window) -> None:
    assert not is_apart(Shape("f32", (2,) * len(window)), window)


def test_one_window_is_apart_from_all_others() -> None:
    compare(
        np.random.default_rng(0).normal(size=(2, 30, 25, 3)).astype(np.float32),
        (TRIVIAL, WindowDimension(30), WindowDimension(25), TRIVIAL),
        "GE",
    )
    assert is_apart(Shape("f32", (2, 1, 1, 3)), (TRIVIAL, WindowDimension(30), WindowDimension(25), TRIVIAL))
