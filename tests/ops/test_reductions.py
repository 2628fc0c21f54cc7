"""reduce, reduce-window, select-and-scatter, map and sort, with bodies of one and of many operations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ir import Computation, WindowDimension
from engine.ir.builder import Builder, binary_computation
from tests.ops.running import run, run_module, same

random = np.random.default_rng(11)


def logarithmic_sum() -> Computation:
    """log(exp(x) + exp(y)): associative, and no single operation."""
    b = Builder("logarithmic_sum")
    x, y = b.parameter("f32"), b.parameter("f32")
    total = b.add(b.elementwise("exponential", x), b.elementwise("exponential", y))
    return b.build(b.elementwise("log", total))


def larger_with_index() -> Computation:
    """Selects the pair with the larger value from two pairs (value, index); of equal values the smaller index."""
    b = Builder("larger")
    value, index, other, other_index = (b.parameter(t) for t in ("f32", "s32", "f32", "s32"))
    tie = b.elementwise("and", b.compare(value, other, "EQ"), b.compare(index, other_index, "LT"))
    first = b.elementwise("or", b.compare(value, other, "GT"), tie)
    return b.build(b.tuple(b.select(first, value, other), b.select(first, index, other_index)))


def with_reshapes(opcode: str) -> Computation:
    """A body that cannot run on whole arrays, because it reshapes its scalars."""
    b = Builder("reshaping")
    x, y = b.parameter("f32"), b.parameter("f32")
    pair = b.elementwise(opcode, b.reshape(x, (1,)), b.reshape(y, (1,)))
    return b.build(b.reshape(pair, ()))


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("dimensions", [(), (1,), (2, 0), (0, 1, 2)])
def test_reduce_by_one_operation(opcode: str, dimensions: tuple[int, ...]) -> None:
    x = random.integers(-4, 5, (3, 5, 2)).astype(np.float32)
    function = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}[opcode]
    kept = tuple(1 if d in dimensions else n for d, n in enumerate(x.shape))
    expected = np.full(kept, 2, np.float32)
    for position in np.ndindex(*x.shape):
        place = tuple(0 if d in dimensions else k for d, k in enumerate(position))
        expected[place] = function(expected[place], x[position])
    for body in (binary_computation(opcode, "f32"), with_reshapes(opcode)):
        result = run("reduce", x, np.float32(2), called=(body,), dimensions=dimensions)
        np.testing.assert_array_equal(result, expected.squeeze(dimensions))


def test_reduce_keeps_nan_wraps_integers_and_takes_the_start() -> None:
    add, maximum = binary_computation("add", "s8"), binary_computation("maximum", "f32")
    same(
        run("reduce", np.array([100, 100], np.int8), np.array(1, np.int8), called=(add,), dimensions=(0,)),
        np.int8(-55),
    )
    x = np.array([[1, np.nan], [3, 2]], np.float32)
    same(
        run("reduce", x, np.float32(-np.inf), called=(maximum,), dimensions=(1,)),
        np.array([np.nan, 3], np.float32),
    )
    empty = np.zeros((0, 2), np.float32)
    same(run("reduce", empty, np.float32(7), called=(maximum,), dimensions=(0,)), np.array([7, 7], np.float32))
    same(
        run("reduce", empty, np.float32(7), called=(logarithmic_sum(),), dimensions=(0,)),
        np.array([7, 7], np.float32),
    )


def test_long_sums_stay_accurate() -> None:
    x = random.random((100_000, 2), np.float32)
    add = binary_computation("add", "f32")
    result = run("reduce", x, np.float32(0), called=(add,), dimensions=(0,))
    np.testing.assert_allclose(result, x.astype(np.float64).sum(0), rtol=5e-7)


@given(st.integers(0, 9), st.integers(0, 3))
def test_reduce_by_any_body(count: int, rows: int) -> None:
    x = random.normal(size=(count, rows)).astype(np.float32)
    result = run("reduce", x, np.float32(0.5), called=(logarithmic_sum(),), dimensions=(0,))
    np.testing.assert_allclose(result, np.log(np.exp(0.5) + np.exp(x).sum(0)), rtol=1e-5)


def test_reduce_of_pairs() -> None:
    x = random.integers(0, 4, (4, 13)).astype(np.float32)
    b = Builder()
    values, start, no_index = b.parameter("f32", (4, 13)), b.constant(-np.inf), b.constant(2**31 - 1, "s32")
    index = b.iota("s32", (4, 13), 1)
    pair = b.inferred("reduce", (values, index, start, no_index), (larger_with_index(),), dimensions=(1,))
    largest, position = run_module(b.module(pair), x)
    same(largest, x.max(1))
    same(position, x.argmax(1).astype(np.int32))


def windows(x: np.ndarray, window: tuple[WindowDimension, ...], start: float) -> list[list[float]]:
    """The elements of each window in row-major order, padding and gaps as the start value."""
    counts, reach = [], []
    for n, d in zip(x.shape, window, strict=True):
        base = max(0, (n - 1) * d.base_dilation + 1) + d.padding_low + d.padding_high
        extent = (d.size - 1) * d.window_dilation + 1
        counts.append(max(0, (base - extent) // d.stride + 1) if base >= extent else 0)
        reach.append(range(d.size))
    found = []
    for place in product(*(range(c) for c in counts)):
        elements = []
        for offset in product(*reach):
            at = [
                p * d.stride + o * d.window_dilation - d.padding_low
                for p, o, d in zip(place, offset, window, strict=True)
            ]
            inside = all(
                a % d.base_dilation == 0 and 0 <= a // d.base_dilation < n
                for a, d, n in zip(at, window, x.shape, strict=True)
            )
            index = tuple(a // d.base_dilation for a, d in zip(at, window, strict=True))
            elements.append(float(x[index]) if inside else start)
        found.append(elements)
    return found


window_dimensions = st.builds(
    WindowDimension,
    size=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding_low=st.integers(-1, 2),
    padding_high=st.integers(-1, 2),
    window_dilation=st.integers(1, 2),
    base_dilation=st.integers(1, 2),
)


@given(st.tuples(window_dimensions, window_dimensions), st.sampled_from(["add", "maximum"]))
def test_reduce_window(window: tuple[WindowDimension, ...], opcode: str) -> None:
    x = random.integers(-9, 9, (4, 5)).astype(np.float32)
    start = 0.0 if opcode == "add" else -np.inf
    combine = sum if opcode == "add" else max
    expected = [combine(elements) for elements in windows(x, window, start)]
    for body in (binary_computation(opcode, "f32"), with_reshapes(opcode)):
        result = run("reduce-window", x, np.float32(start), called=(body,), window=window)
        np.testing.assert_array_equal(result.ravel(), np.array(expected, np.float32))


@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
def test_select_and_scatter_sends_each_source_to_its_maximum(padding: tuple[int, int]) -> None:
    x = random.integers(0, 3, (6, 7)).astype(np.float32)
    dimension = WindowDimension(3, 2, *padding)
    b = Builder("ge")
    greater = b.build(b.compare(b.parameter("f32"), b.parameter("f32"), "GE"))
    add = binary_computation("add", "f32")
    marked = np.pad(x, padding, constant_values=-np.inf)
    counts = [(n - 3) // 2 + 1 for n in marked.shape]
    source = random.integers(1, 9, counts).astype(np.float32)
    expected = np.full(marked.shape, 0.5, np.float32)
    for i, j in np.ndindex(*counts):
        row, column = divmod(int(marked[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].argmax()), 3)
        expected[2 * i + row, 2 * j + column] += source[i, j]
    inner = tuple(slice(padding[0], padding[0] + n) for n in x.shape)
    result = run("select-and-scatter", x, source, np.float32(0.5), called=(greater, add), window=(dimension,) * 2)
    same(result, expected[inner])


def test_map_runs_its_body_on_each_element() -> None:
    x, y = random.normal(size=(2, 3, 4)).astype(np.float32)
    result = run("map", x, y, called=(logarithmic_sum(),), dimensions=(0, 1))
    np.testing.assert_allclose(result, np.logaddexp(x, y), rtol=1e-5)
    same(run("map", x, y, called=(with_reshapes("subtract"),), dimensions=(0, 1)), x - y)


def comparator(direction: str, reshaping: bool = False) -> Computation:
    b = Builder("comparator")
    left, right, *_ = (b.parameter(t) for t in ("f32", "f32", "s32", "s32"))
    if reshaping:
        compared = b.compare(b.reshape(left, (1,)), b.reshape(right, (1,)), direction)
        return b.build(b.reshape(compared, ()))
    return b.build(b.compare(left, right, direction))


@pytest.mark.parametrize("length", [0, 1, 2, 13, 16])
@pytest.mark.parametrize("reshaping", [False, True])
def test_sort_is_stable_along_its_dimension(length: int, reshaping: bool) -> None:
    keys = random.integers(0, 4, (length, 3)).astype(np.float32)
    b = Builder()
    values = b.parameter("f32", (length, 3))
    index = b.iota("s32", (length, 3), 0)
    body = comparator("GT", reshaping)
    root = b.inferred("sort", (values, index), (body,), dimensions=(0,), is_stable=True)
    ordered, order = run_module(b.module(root), keys)
    expected = np.argsort(-keys, axis=0, kind="stable")
    same(order, expected.astype(np.int32))
    same(ordered, np.take_along_axis(keys, expected, 0))
