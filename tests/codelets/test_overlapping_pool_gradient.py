"""Gradients of max pooling with overlapping windows, against the definition of select-and-scatter, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.pooling.overlapping_pool_gradient import encoded_overlapping_pools
from engine.ir.attributes import Window, WindowDimension
from engine.ir.pooling import DIRECTIONS, MOST_COLUMNS, gathers_pools
from engine.ir.shape import NUMPY_TYPES, Shape, shape_of
from tests.codelets.pooling import gradient, oracle, output_shape
from tests.codelets.test_pool_gradient import SPECIAL, TRIVIAL

SAME, STEPPING = WindowDimension(3, 1, 1, 1), WindowDimension(3, 2, 0, 1)


def compare(operand: np.ndarray, window: Window, direction: str, init: float = 0.0) -> None:
    rng = np.random.default_rng(operand.size)
    source = rng.standard_normal(output_shape(operand.shape, window)).astype(np.float32)
    source[rng.random(source.shape) < 0.2] = -0.0
    expected = oracle(operand.astype(np.float32), source, np.float32(init), window, direction).astype(operand.dtype)
    assert gathers_pools(shape_of(source), window)
    for workers in (1, 3):
        found = gradient(encoded_overlapping_pools, operand, source, init, window, direction, workers)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("side", "channels"), [*((SAME, c) for c in (1, 3, 5, 16, 24, 33)), *((STEPPING, c) for c in (5, 16, 24, 33))]
)
def test_usual_pooling(side: WindowDimension, channels: int) -> None:
    """Windows that reach over the edges, few different values, images smaller than windows."""
    rng = np.random.default_rng(channels)
    for height, width in ((7, 9), (2, 5), (1, 1)):
        operand = rng.integers(-2, 3, (3, height, width, channels)).astype(np.float32)
        compare(operand, (TRIVIAL, side, side, TRIVIAL), "GE")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pooling_of_16_bit_floats(kind: str) -> None:
    """The result has the bits of a gradient in f32, rounded once."""
    rng = np.random.default_rng(1)
    operand = rng.integers(-2, 3, (2, 6, 5, 19)).astype(NUMPY_TYPES[kind])
    operand[0, 0, 0, 0], operand[1, 1, 1, -1] = np.nan, -np.inf
    for side in (SAME, STEPPING):
        compare(operand, (TRIVIAL, side, side, TRIVIAL), "GE")


@pytest.mark.sample(30)
@pytest.mark.parametrize("seed", range(120))
def test_any_window(seed: int) -> None:
    rng = np.random.default_rng(seed)
    windowed, before, after = (int(n) for n in rng.integers([1, 0, 0], [3, 3, 3]))
    sizes, window = [int(n) for n in rng.integers(1, 10, windowed)], []
    for size in sizes:
        places, stride = int(rng.integers(1, MOST_COLUMNS + 1)), int(rng.integers(1, 4))
        low = int(rng.integers(-1, places + 2))
        high = int(rng.integers(max(-1, places - size - low), max(4, places - size - low + 1)))
        window.append(WindowDimension(places, stride, low, high))
    outer, inner = rng.integers(1, 4, before), rng.integers(4 if seed % 3 else 1, 21, after)
    dimensions = tuple(int(n) for n in (*outer, *sizes, *inner))
    whole = (*[TRIVIAL] * before, *window, *[TRIVIAL] * after)
    operand = rng.choice(SPECIAL if seed % 2 else np.arange(-2, 3).astype(np.float32), dimensions)
    if gathers_pools(Shape("f32", output_shape(dimensions, whole)), whole):
        compare(operand, whole, DIRECTIONS[seed % len(DIRECTIONS)], float(rng.choice([0.0, -0.0, 1.5])))


@pytest.mark.sample(16)
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("seed", range(40))
def test_groups_of_elements(kind: str, seed: int) -> None:
    """Wide images, whose elements are computed by groups, with few channels or no whole number of vectors."""
    rng = np.random.default_rng(seed)
    places = int(rng.integers(2, MOST_COLUMNS + 1))
    wide = WindowDimension(places, int(rng.integers(2, places + 1)), *(int(n) for n in rng.integers(-1, places, 2)))
    high = WindowDimension(int(rng.integers(2, 4)), int(rng.integers(1, 3)), *(int(n) for n in rng.integers(0, 2, 2)))
    shape = 2, int(rng.integers(3, 8)), int(rng.integers(12, 45)), int(rng.choice([*range(2, 20), 24, 35]))
    operand = rng.choice(SPECIAL[:-1] if seed % 2 else np.arange(-2, 3), shape).astype(NUMPY_TYPES[kind])
    compare(operand, (TRIVIAL, high, wide, TRIVIAL), DIRECTIONS[seed % len(DIRECTIONS)])


def test_empty_arrays() -> None:
    for dimensions in ((0, 4, 4, 2), (2, 4, 4, 0)):
        compare(np.zeros(dimensions, np.float32), (TRIVIAL, SAME, SAME, TRIVIAL), "GE")


@pytest.mark.parametrize(
    "window",
    [
        (TRIVIAL, WindowDimension(3, 1, window_dilation=2), TRIVIAL),
        (TRIVIAL, TRIVIAL, TRIVIAL),
        (SAME, TRIVIAL, SAME),
        (TRIVIAL, WindowDimension(40), TRIVIAL),
        (TRIVIAL, TRIVIAL, STEPPING),
    ],
    ids=["dilated", "none", "apart", "long", "few channels"],
)
def test_other_windows_are_expanded(window: Window) -> None:
    assert not gathers_pools(Shape("f32", (2, 50, 50)), window)
