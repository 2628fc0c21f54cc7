"""dot and convolution against sums written out, with every kind of dimension numbers, window and group."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ir import ConvolutionDimensionNumbers, DotDimensionNumbers, Shape, Window, WindowDimension
from tests.ops.running import run, same

random = np.random.default_rng(5)


@given(st.data())
def test_dot_with_any_dimension_numbers(data: st.DataObject) -> None:
    batch = data.draw(st.lists(st.integers(0, 3), max_size=2))
    contracted = data.draw(st.lists(st.integers(0, 3), max_size=2))
    left = data.draw(st.lists(st.integers(0, 3), max_size=2))
    right = data.draw(st.lists(st.integers(0, 3), max_size=2))
    letters = iter("abcdefgh")
    names = [[next(letters) for _ in group] for group in (batch, contracted, left, right)]
    lhs_order = data.draw(st.permutations(names[0] + names[1] + names[2]))
    rhs_order = data.draw(st.permutations(names[0] + names[1] + names[3]))
    size = dict(zip(sum(names, []), batch + contracted + left + right, strict=True))
    lhs = random.integers(-4, 5, [size[n] for n in lhs_order]).astype(np.float32)
    rhs = random.integers(-4, 5, [size[n] for n in rhs_order]).astype(np.float32)
    numbers = DotDimensionNumbers(
        tuple(lhs_order.index(n) for n in names[1]),
        tuple(rhs_order.index(n) for n in names[1]),
        tuple(lhs_order.index(n) for n in names[0]),
        tuple(rhs_order.index(n) for n in names[0]),
    )
    output = names[0] + [n for n in lhs_order if n in names[2]] + [n for n in rhs_order if n in names[3]]
    expected = np.einsum(f"{''.join(lhs_order)},{''.join(rhs_order)}->{''.join(output)}", lhs, rhs)
    result = run("dot", lhs, rhs, result=Shape("f32", ()), dot_dimension_numbers=numbers)
    np.testing.assert_array_equal(result, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("operands", "element_type", "expected"),
    [
        (np.array([127, 127], np.int8), "s32", np.int32(2 * 127 * 127)),
        (np.array([2**31 - 1, 1], np.int32), "s32", np.int32(2)),
        (np.array([32, 32, 1, 1], np.float16), "f16", np.float16(2050)),
        (np.array([16, 1, 1], ml_dtypes.bfloat16), "f32", np.float32(258)),
        (np.array([1j, 2], np.complex64), "c64", np.complex64(3)),
    ],
)
def test_dot_sums_in_the_type_of_its_result(operands: np.ndarray, element_type: str, expected: np.generic) -> None:
    numbers = DotDimensionNumbers((0,), (0,))
    result = run("dot", operands, operands, result=Shape(element_type, ()), dot_dimension_numbers=numbers)
    assert result.dtype == expected.dtype and result == expected


PLAIN = ConvolutionDimensionNumbers(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))


def naive(image: np.ndarray, kernel: np.ndarray, window: Window, feature_groups: int, batch_groups: int) -> np.ndarray:
    """The convolution of [batch, in, h, w] with [out, in, h, w], one product at a time."""
    counts = []
    for n, d in zip(image.shape[2:], window, strict=True):
        base = (n - 1) * d.base_dilation + 1 + d.padding_low + d.padding_high if n else d.padding_low + d.padding_high
        extent = (d.size - 1) * d.window_dilation + 1
        counts.append((base - extent) // d.stride + 1 if base >= extent else 0)
    batch, outputs, inputs = image.shape[0] // batch_groups, kernel.shape[0], kernel.shape[1]
    result = np.zeros((batch, outputs, *counts), np.float64)
    for b, o, y, x in np.ndindex(*result.shape):
        group = o // (outputs // (feature_groups * batch_groups))
        first_feature = group * inputs if feature_groups > 1 else 0
        row = b + (group * batch if batch_groups > 1 else 0)
        for i, ky, kx in np.ndindex(*kernel.shape[1:]):
            at = []
            for place, k, d, n in zip((y, x), (ky, kx), window, image.shape[2:], strict=True):
                offset = d.size - 1 - k if d.window_reversal else k
                position = place * d.stride + offset * d.window_dilation - d.padding_low
                inside = position % d.base_dilation == 0 and 0 <= position // d.base_dilation < n
                at.append(position // d.base_dilation if inside else None)
            if None not in at:
                result[b, o, y, x] += image[row, first_feature + i, at[0], at[1]] * kernel[o, i, ky, kx]
    return result.astype(np.float32)


def dimension(size: int) -> st.SearchStrategy[WindowDimension]:
    return st.builds(
        WindowDimension,
        size=st.just(size),
        stride=st.integers(1, 3),
        padding_low=st.integers(-2, 3),
        padding_high=st.integers(-2, 3),
        window_dilation=st.integers(1, 2),
        base_dilation=st.integers(1, 2),
        window_reversal=st.booleans(),
    )


@given(st.tuples(dimension(2), dimension(3)), st.sampled_from([(1, 1), (2, 1), (4, 1), (1, 2), (1, 3)]))
def test_convolution_with_any_window_and_groups(window: Window, groups: tuple[int, int]) -> None:
    feature_groups, batch_groups = groups
    image = random.integers(-3, 4, (2 * batch_groups, 4, 3, 4)).astype(np.float32)
    kernel = random.integers(-3, 4, (4 * batch_groups, 4 // feature_groups, 2, 3)).astype(np.float32)
    result = run(
        "convolution",
        image,
        kernel,
        window=window,
        convolution_dimension_numbers=PLAIN,
        feature_group_count=feature_groups,
        batch_group_count=batch_groups,
    )
    np.testing.assert_array_equal(result, naive(image, kernel, window, feature_groups, batch_groups))


@given(st.permutations(range(4)), st.permutations(range(4)), st.permutations(range(4)))
def test_convolution_with_any_dimension_numbers(lhs: list[int], rhs: list[int], out: list[int]) -> None:
    window = (WindowDimension(2, 2, 1, 0), WindowDimension(3, 1, 0, 1))
    image = random.integers(-3, 4, (2, 3, 5, 4)).astype(np.float32)
    kernel = random.integers(-3, 4, (4, 3, 2, 3)).astype(np.float32)
    numbers = ConvolutionDimensionNumbers(
        *(lhs[0], lhs[1], (lhs[2], lhs[3])),
        *(rhs[1], rhs[0], (rhs[2], rhs[3])),
        *(out[0], out[1], (out[2], out[3])),
    )
    result = run(
        "convolution",
        image.transpose(np.argsort(lhs)),
        kernel.transpose(np.argsort(rhs)),
        window=window,
        convolution_dimension_numbers=numbers,
    )
    same(result, naive(image, kernel, window, 1, 1).transpose(np.argsort(out)))


@pytest.mark.parametrize(("batch", "inputs", "outputs"), [(0, 2, 3), (2, 0, 3), (2, 2, 0)])
def test_convolution_of_nothing(batch: int, inputs: int, outputs: int) -> None:
    window = (WindowDimension(2), WindowDimension(2))
    image, kernel = np.ones((batch, inputs, 3, 3), np.float32), np.ones((outputs, inputs, 2, 2), np.float32)
    result = run("convolution", image, kernel, window=window, convolution_dimension_numbers=PLAIN)
    same(result, np.full((batch, outputs, 2, 2), 4.0 * inputs, np.float32))
