"""gather, scatter and dynamic slices against the definitions element by element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ir import Computation, GatherDimensionNumbers, ScatterDimensionNumbers
from engine.ir.builder import Builder, binary_computation
from tests.ops.running import run, run_module, same

random = np.random.default_rng(3)


def naive_gather(
    operand: np.ndarray, indices: np.ndarray, n: GatherDimensionNumbers, sizes: tuple[int, ...], rank: int
) -> dict[tuple[int, ...], float]:
    batch_dims = [d for d in range(rank) if d not in n.offset_dims]
    index_dims = [d for d in range(indices.ndim) if d != n.index_vector_dim]
    absent = (*n.collapsed_slice_dims, *n.operand_batching_dims)
    window_dims = [d for d in range(operand.ndim) if d not in absent]
    counts = {b: indices.shape[i] for b, i in zip(batch_dims, index_dims, strict=True)}
    counts |= {o: sizes[w] for o, w in zip(n.offset_dims, window_dims, strict=True)}
    found = {}
    for position in np.ndindex(*(counts[d] for d in range(rank))):
        at = dict(zip(index_dims, (position[d] for d in batch_dims), strict=True))
        source = [0] * operand.ndim
        for k, d in enumerate(n.start_index_map):
            where = tuple(at.get(i, k) for i in range(indices.ndim))
            source[d] = min(max(int(indices[where]), 0), operand.shape[d] - sizes[d])
        for d, i in zip(n.operand_batching_dims, n.start_indices_batching_dims, strict=True):
            source[d] += at[i]
        for o, d in zip(n.offset_dims, window_dims, strict=True):
            source[d] += position[o]
        found[position] = float(operand[tuple(source)])
    return found


GATHERS = [
    ((5, 4), (3, 1), GatherDimensionNumbers((1,), (0,), (0,), 1), (1, 4)),
    ((5, 4), (3,), GatherDimensionNumbers((1,), (0,), (0,), 1), (1, 2)),
    ((5, 4, 3), (2, 6), GatherDimensionNumbers((0, 2), (1,), (2, 1), 0), (3, 1, 2)),
    ((5, 4, 3), (2, 2, 3), GatherDimensionNumbers((1,), (0, 1), (1, 0), 1), (1, 1, 3)),
    ((3, 5, 4), (3, 2, 1), GatherDimensionNumbers((2,), (1,), (1,), 2, (0,), (0,)), (1, 1, 4)),
    ((3, 5, 4), (2, 3), GatherDimensionNumbers((0,), (1,), (1,), 2, (0,), (1,)), (1, 1, 3)),
    ((6,), (0, 1), GatherDimensionNumbers((), (0,), (0,), 1), (1,)),
    ((6, 2), (4, 1), GatherDimensionNumbers((0, 2), (), (1,), 1), (6, 1)),
]


@pytest.mark.parametrize(("operand", "indices", "numbers", "sizes"), GATHERS)
def test_gather(
    operand: tuple[int, ...],
    indices: tuple[int, ...],
    numbers: GatherDimensionNumbers,
    sizes: tuple[int, ...],
) -> None:
    x = random.normal(size=operand).astype(np.float32)
    starts = random.integers(-3, 9, indices).astype(np.int32)
    result = run("gather", x, starts, gather_dimension_numbers=numbers, gather_slice_sizes=sizes)
    expected = naive_gather(x, starts, numbers, sizes, result.ndim)
    assert len(expected) == result.size
    assert all(result[position] == np.float32(value) for position, value in expected.items())


def body(kind: str) -> Computation:
    """A computation: add, subtract, assign, or twice (2x + y, which is no single operation)."""
    if kind in ("add", "subtract", "maximum"):
        return binary_computation(kind, "f32")
    b = Builder(kind)
    x, y = b.parameter("f32"), b.parameter("f32")
    return b.build(y if kind == "assign" else b.add(b.add(x, x), y))


FUNCTIONS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "maximum": max,
    "assign": lambda _, y: y,
    "twice": lambda x, y: 2 * x + y,
}
SCATTERS = [
    ((5, 4), (6, 1), (6, 4), ScatterDimensionNumbers((1,), (0,), (0,), 1)),
    ((5, 4), (6,), (6, 4), ScatterDimensionNumbers((1,), (0,), (0,), 1)),
    ((5, 4, 3), (2, 6), (3, 6), ScatterDimensionNumbers((0,), (0, 1), (1, 0), 0)),
    ((3, 5, 2), (3, 4, 1), (3, 4, 2), ScatterDimensionNumbers((2,), (1,), (1,), 2, (0,), (0,))),
    ((5,), (0, 1), (0,), ScatterDimensionNumbers((), (0,), (0,), 1)),
    ((5, 4), (6, 1), (6, 3, 2), ScatterDimensionNumbers((1, 2), (), (0,), 1)),
]


def naive_scatter(
    operand: np.ndarray, indices: np.ndarray, updates: np.ndarray, n: ScatterDimensionNumbers, kind: str
) -> np.ndarray:
    result = operand.copy()
    batch_dims = [d for d in range(updates.ndim) if d not in n.update_window_dims]
    index_dims = [d for d in range(indices.ndim) if d != n.index_vector_dim]
    window_dims = [d for d in range(operand.ndim) if d not in (*n.inserted_window_dims, *n.input_batching_dims)]
    for position in np.ndindex(*updates.shape):
        at = dict(zip(index_dims, (position[d] for d in batch_dims), strict=True))
        target, extent = [0] * operand.ndim, [1] * operand.ndim
        for k, d in enumerate(n.scatter_dims_to_operand_dims):
            target[d] += int(indices[tuple(at.get(i, k) for i in range(indices.ndim))])
        for d, i in zip(n.input_batching_dims, n.scatter_indices_batching_dims, strict=True):
            target[d] += at[i]
        first = tuple(target)
        for u, d in zip(n.update_window_dims, window_dims, strict=True):
            target[d] += position[u]
            extent[d] = updates.shape[u]
        # A window that reaches over the edge is left out as a whole.
        if all(0 <= t <= size - e for t, size, e in zip(first, operand.shape, extent, strict=True)):
            where = tuple(target)
            result[where] = FUNCTIONS[kind](result[where], updates[position])
    return result


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize(("operand", "indices", "updates", "numbers"), SCATTERS)
def test_scatter(
    kind: str,
    operand: tuple[int, ...],
    indices: tuple[int, ...],
    updates: tuple[int, ...],
    numbers: ScatterDimensionNumbers,
) -> None:
    x = random.integers(-9, 9, operand).astype(np.float32)
    starts = random.integers(-1, 6, indices).astype(np.int32)
    new = random.integers(-9, 9, updates).astype(np.float32)
    result = run("scatter", x, starts, new, called=(body(kind),), scatter_dimension_numbers=numbers)
    np.testing.assert_array_equal(result, naive_scatter(x, starts, new, numbers, kind))


def test_scatter_of_two_operands_at_once() -> None:
    b = Builder("both")
    x, y, dx, dy = (b.parameter("f32") for _ in range(4))
    both = b.build(b.tuple(b.add(x, dy), b.subtract(y, dx)))
    m = Builder()
    operands = [m.parameter("f32", (4,)) for _ in range(2)]
    operands += [m.parameter("s32", (3, 1))] + [m.parameter("f32", (3,)) for _ in range(2)]
    numbers = ScatterDimensionNumbers((), (0,), (0,), 1)
    root = m.inferred("scatter", operands, (both,), scatter_dimension_numbers=numbers)
    zeros, indices = np.zeros(4, np.float32), np.array([[1], [3], [1]], np.int32)
    dx_value, dy_value = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)
    first, second = run_module(m.module(root), zeros, zeros, indices, dx_value, dy_value)
    same(first, np.array([0, 40, 0, 20], np.float32))
    same(second, np.array([0, -4, 0, -2], np.float32))


@given(st.integers(-9, 9), st.integers(-9, 9))
def test_dynamic_slices_are_clamped(row: int, column: int) -> None:
    x = random.normal(size=(5, 6)).astype(np.float32)
    starts = np.array(row, np.int32), np.array(column, np.int64)
    i, j = min(max(row, 0), 2), min(max(column, 0), 4)
    same(run("dynamic-slice", x, *starts, dynamic_slice_sizes=(3, 2)), x[i : i + 3, j : j + 2])
    update = np.full((3, 2), 7, np.float32)
    expected = x.copy()
    expected[i : i + 3, j : j + 2] = 7
    same(run("dynamic-update-slice", x, update, *starts), expected)
