"""reduce-window and select-and-scatter."""

from __future__ import annotations

import numpy as np
import pytest

from engine.ir import Instruction, Module, Shape, TupleShape, Window, WindowDimension
from engine.ir.builder import Builder, binary_computation
from engine.ir.opcodes import neutral_element
from engine.ir.structured_shape_rules import window_count
from tests.engine.running import check, fast, slow
from tests.lower.test_convolution import random_window


def windowed(kind: str, shape: list[int], window: Window, opcode: str, fixed: bool = True) -> None:
    builder = Builder()
    x = builder.parameter(kind, shape)
    start = {"add": 0, "multiply": 1}.get(opcode)
    if start is None:
        start = neutral_element(opcode, kind)
    initial = builder.constant(start, kind) if fixed else builder.parameter(kind)
    builder.reduce_window(x, initial, window, opcode)
    check(builder.module())


@pytest.mark.sample(7)
@pytest.mark.parametrize("opcode", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("seed", range(15))
def test_any_window(opcode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    shape = [int(n) for n in rng.integers(1, 8, rank)]
    window = tuple(random_window(rng, n, seed % 2 > 0) for n in shape)
    window = tuple(WindowDimension(w.size, w.stride, *_padding(w), w.window_dilation, w.base_dilation) for w in window)
    if any(window_count(n, w) <= 0 for n, w in zip(shape, window, strict=True)):
        pytest.skip("the window has no position")
    kind = str(rng.choice(["f32", "s32", "f16", "f64"]))
    windowed(kind, shape, window, opcode, fixed=seed % 3 > 0)


SCANS = {"inclusive": (1, 0, False), "exclusive": (0, 1, False), "reverse": (1, 0, True), "long": (1, 3, True)}
"""The number of elements of the first window, by how much windows are longer than the array, and the direction."""


@pytest.mark.sample(14)
@pytest.mark.parametrize("kind", ["f32", "s32", "f16", "bf16", "f64", "u8", "s64", "u64"])
@pytest.mark.parametrize("shape", [(9,), (1, 1), (7, 33), (3, 5, 2), (2, 70, 67), (1, 40, 200), (5, 0, 3)])
@pytest.mark.parametrize("scan", SCANS)
def test_scans(scan: str, shape: tuple[int, ...], kind: str) -> None:
    """Windows that all begin with the first element, or end with the last, are scans in one pass."""
    first, more, backward = SCANS[scan]
    dimension = len(shape) - 1 if len(shape) < 3 else 1
    size = max(2, shape[dimension]) + more
    padding = (0, size - first) if backward else (size - first, 0)
    window = [WindowDimension(1)] * len(shape)
    window[dimension] = WindowDimension(size, 1, *padding)
    for opcode in ("add", "multiply", "maximum", "minimum") if kind not in ("f16", "bf16") else ("add", "maximum"):
        windowed(kind, list(shape), tuple(window), opcode)


def scan_of(x: np.ndarray, opcode: str, initial: float, backward: bool) -> Module:
    """The scan of an array along its first dimension."""
    builder, low = Builder(), len(x) - 1
    window = (WindowDimension(len(x), 1, *((0, low) if backward else (low, 0))), *[WindowDimension(1)] * (x.ndim - 1))
    builder.reduce_window(builder.parameter("f32", list(x.shape)), builder.constant(initial), window, opcode)
    return builder.module()


@pytest.mark.parametrize("opcode, initial", [("add", 0.0), ("add", -0.0), ("maximum", -np.inf), ("minimum", np.inf)])
def test_scans_of_special_values(opcode: str, initial: float) -> None:
    """NaN stays until the end, and sums of -0 take their sign from the initial value."""
    values = np.array([-0.0, -0.0, 0.0, -0.0, 1.5, np.inf, -1.5, -np.inf, 2.0, np.nan, 3.0, -0.0], np.float32)
    for x in (values, np.stack([np.roll(values, k) for k in range(19)], 1)):
        for backward in (False, True):
            module = scan_of(x, opcode, initial, backward)
            ((found,), _), ((expected,), _) = fast(module, [x]), slow(module, [x])
            np.testing.assert_array_equal(found, expected)
            if opcode == "add":
                signs = (np.signbit(each[~np.isnan(found)]) for each in (found, expected))
                np.testing.assert_array_equal(*signs)


def test_windows_that_only_look_like_scans() -> None:
    """Windows are summed one by one for a parameter as the initial value, for steps, and for padding on both sides."""
    for window in ((9, 1, 8, 1), (9, 2, 8, 0), (8, 1, 7, 0), (9, 1, 4, 4)):
        windowed("f32", [9, 3], (WindowDimension(*window), WindowDimension(1)), "add")
    windowed("f32", [9, 3], (WindowDimension(9, 1, 8, 0), WindowDimension(1)), "add", fixed=False)


def _padding(window: WindowDimension) -> tuple[int, int]:
    return window.padding_low, window.padding_high


def pooling(size: int, stride: int, low: int = 0, high: int = 0) -> Window:
    side = WindowDimension(size, stride, low, high)
    return (WindowDimension(1), side, side, WindowDimension(1))


@pytest.mark.parametrize("features", [1, 3, 16, 17, 64])
@pytest.mark.parametrize("window", [pooling(2, 2), pooling(3, 2, 0, 1), pooling(3, 1, 1, 1)], ids=["2", "3/2", "3"])
def test_pooling(features: int, window: Window) -> None:
    for opcode in ("add", "maximum"):
        windowed("f32", [2, 9, 8, features], window, opcode)


def test_pooling_large_enough_for_many_units() -> None:
    windowed("f32", [8, 28, 28, 6], pooling(2, 2), "maximum")
    windowed("f32", [8, 28, 28, 6], pooling(3, 2, 1, 1), "add")


def test_nan_in_a_window() -> None:
    x = np.arange(64, dtype=np.float32).reshape(1, 8, 8, 1)
    x[0, 3, 3, 0] = np.nan
    builder = Builder()
    p = builder.parameter("f32", x.shape)
    builder.reduce_window(p, builder.constant(-np.inf), pooling(2, 2), "maximum")
    check(builder.module(), [x])


def test_empty_windows_and_arrays() -> None:
    windowed("f32", [0, 4, 4, 2], pooling(2, 2), "add")
    windowed("f32", [2, 1, 1, 2], pooling(3, 1), "add")
    windowed("f32", [2, 4, 4, 0], pooling(2, 2), "maximum")


def test_two_arrays_and_a_body_of_any_kind() -> None:
    """Computes the greatest value of each window and its place, as max_pool_with_argmax does."""
    body = Builder("argmax")
    value, place, other, other_place = (body.parameter(k) for k in ("f32", "s32", "f32", "s32"))
    keep = body.compare(value, other, "GE")
    argmax = body.build(body.tuple(body.select(keep, value, other), body.select(keep, place, other_place)))
    for window in (pooling(2, 2), pooling(3, 2, 1, 1)):
        builder = Builder()
        x = builder.parameter("f32", (2, 8, 8, 5))
        places = builder.iota("s32", (2, 8, 8, 5), 2)
        low, zero = builder.constant(-np.inf), builder.constant(0, "s32")
        kept = tuple(window_count(n, w) for n, w in zip((2, 8, 8, 5), window, strict=True))
        shape = TupleShape((Shape("f32", kept), Shape("s32", kept)))
        made = builder.instruction("reduce-window", shape, (x, places, low, zero), (argmax,), window=window)
        check(builder.module(builder.tuple(*(builder.get_tuple_element(made, k) for k in range(2)))))


def scattered(
    builder: Builder, x: Instruction, window: Window, direction: str, kind: str
) -> tuple[Instruction, Instruction]:
    counts = [window_count(n, w) for n, w in zip(x.array_shape.dimensions, window, strict=True)]
    source = builder.parameter(kind, counts)
    select = Builder("select")
    a, b = select.parameter(kind), select.parameter(kind)
    chosen = select.build(select.compare(a, b, direction))
    bodies = (chosen, binary_computation("add", kind))
    zero = builder.constant(0, kind)
    made = builder.instruction("select-and-scatter", x.shape, (x, source, zero), bodies, window=window)
    return made, source


@pytest.mark.sample(3)
@pytest.mark.parametrize("direction", ["GE", "GT", "LE"])
@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
@pytest.mark.parametrize("window", [pooling(2, 2), pooling(3, 2, 0, 1), pooling(3, 1, 1, 1)], ids=["2", "3/2", "3"])
def test_select_and_scatter(direction: str, kind: str, window: Window) -> None:
    for shape in ((3, 8, 8, 5), (1, 6, 7, 33)):
        builder = Builder()
        x = builder.parameter(kind, shape)
        scattered(builder, x, window, direction, kind)
        rng = np.random.default_rng(1)
        arrays = [rng.integers(-3, 4, p.array_shape.dimensions) for p in builder.build().parameters]
        check(builder.module(), [a.astype(Shape(kind).dtype) for a in arrays])


def test_select_and_scatter_large_enough_for_many_workers() -> None:
    builder = Builder()
    x = builder.parameter("f32", (16, 24, 24, 8))
    made, _ = scattered(builder, builder.elementwise("negate", x), pooling(2, 2), "GE", "f32")
    builder.add(made, x)
    check(builder.module())
