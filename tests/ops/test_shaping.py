"""Shape ops against loops over every element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UnsupportedOperation
from engine.ir import PaddingDimension, Shape, SliceDimension
from tests.ops.running import run, same

sizes = st.lists(st.integers(0, 4), min_size=0, max_size=3).map(tuple)


def numbered(dimensions: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(dimensions, dtype=int), dtype=np.int32).reshape(dimensions)


@given(st.data())
def test_broadcast_places_each_dimension(data: st.DataObject) -> None:
    result = data.draw(sizes)
    mapping = tuple(data.draw(st.permutations(range(len(result)))))[: data.draw(st.integers(0, len(result)))]
    x = numbered(tuple(result[d] for d in mapping))
    expected = np.empty(result, np.int32)
    for position in np.ndindex(*result):
        expected[position] = x[tuple(position[d] for d in mapping)]
    same(run("broadcast", x, result=Shape("s32", result), dimensions=mapping), expected)


@given(st.data())
def test_transpose_moves_each_dimension(data: st.DataObject) -> None:
    x = numbered(data.draw(sizes))
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    result = run("transpose", x, dimensions=order)
    assert result.shape == tuple(x.shape[d] for d in order)
    for position in np.ndindex(*result.shape):
        assert result[position] == x[tuple(position[order.index(d)] for d in range(x.ndim))]


@given(sizes, st.data())
def test_pad_with_gaps_and_cuts(dimensions: tuple[int, ...], data: st.DataObject) -> None:
    x, edge = numbered(dimensions), st.integers(-3, 3)
    config = tuple(PaddingDimension(data.draw(edge), data.draw(edge), data.draw(st.integers(0, 2))) for _ in dimensions)
    lengths = [
        max(0, n + max(0, n - 1) * p.interior_padding + p.edge_padding_low + p.edge_padding_high)
        for n, p in zip(dimensions, config, strict=True)
    ]
    expected = np.full(lengths, -1, np.int32)
    for position in np.ndindex(*dimensions):
        target = tuple(p.edge_padding_low + i * (p.interior_padding + 1) for i, p in zip(position, config, strict=True))
        if all(0 <= t < n for t, n in zip(target, lengths, strict=True)):
            expected[target] = x[position]
    same(run("pad", x, np.array(-1, np.int32), padding_config=config), expected)


def test_slice_with_strides() -> None:
    x = numbered((5, 7))
    result = run("slice", x, slice_dimensions=(SliceDimension(1, 5, 2), SliceDimension(3, 3)))
    same(result, x[1:5:2, 3:3])
    same(run("slice", x, slice_dimensions=(SliceDimension(0, 5, 3), SliceDimension(2, 7))), x[::3, 2:])


def test_reverse_concatenate_reshape() -> None:
    x = numbered((2, 3, 2))
    same(run("reverse", x, dimensions=(0, 2)), x[::-1, :, ::-1])
    same(run("concatenate", x, x[:, :0], x[:, 1:], dimensions=(1,)), np.concatenate([x, x[:, 1:]], 1))
    same(run("reshape", x.transpose(2, 1, 0), result=Shape("s32", (4, 3))), x.transpose(2, 1, 0).reshape(4, 3))


@pytest.mark.parametrize("element_type", ["s32", "u8", "f16", "bf16", "f64"])
def test_iota_counts_along_one_dimension(element_type: str) -> None:
    result = run("iota", result=Shape(element_type, (2, 3, 4)), iota_dimension=1)
    expected = np.broadcast_to(np.arange(3).reshape(1, 3, 1), (2, 3, 4)).astype(Shape(element_type).dtype)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype


def test_dimension_sizes() -> None:
    x = numbered((2, 5))
    same(run("get-dimension-size", x, dimensions=(1,)), np.array(5, np.int32))
    same(run("set-dimension-size", x, np.array(5, np.int32), dimensions=(1,)), x)
    with pytest.raises(UnsupportedOperation, match="keep its size 5"):
        run("set-dimension-size", x, np.array(4, np.int32), dimensions=(1,))
