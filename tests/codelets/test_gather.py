"""gather against its definition, one element at a time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from engine.codelets.language.record import block
from engine.codelets.rows.gather import gather, gather_parts
from engine.codelets.rows.gather_rows import gather_rows, gathers_rows
from engine.errors import InternalError
from engine.ir.attributes import GatherDimensionNumbers
from engine.program.work.indexing import GatherWork
from tests.codelets.arrays import array_of
from tests.runtime.ranges import even_ranges


def oracle(
    operand: np.ndarray, indices: np.ndarray, numbers: GatherDimensionNumbers, slice_sizes: tuple[int, ...]
) -> np.ndarray:
    """HLO's definition."""
    skipped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [d for d in range(operand.ndim) if d not in skipped]
    if numbers.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    batch_shape = [n for d, n in enumerate(indices.shape) if d != numbers.index_vector_dim]
    vectors = np.moveaxis(indices, numbers.index_vector_dim, -1)
    rank = len(batch_shape) + len(numbers.offset_dims)
    batch_dims = [d for d in range(rank) if d not in numbers.offset_dims]
    shape = [0] * rank
    for d, n in zip(batch_dims, batch_shape, strict=True):
        shape[d] = n
    for d, o in zip(numbers.offset_dims, window, strict=True):
        shape[d] = slice_sizes[o]
    result = np.zeros(shape, operand.dtype)
    for position in np.ndindex(*shape):
        batch = tuple(position[d] for d in batch_dims)
        at = [0] * operand.ndim
        for k, d in enumerate(numbers.start_index_map):
            at[d] = min(max(int(vectors[batch][k]), 0), operand.shape[d] - slice_sizes[d])
        for index_dim, d in zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True):
            at[d] = batch[index_dim - (index_dim > numbers.index_vector_dim)]
        for d, o in zip(numbers.offset_dims, window, strict=True):
            at[o] += position[d]
        result[position] = operand[tuple(at)]
    return result


def compare(
    operand: np.ndarray, indices: np.ndarray, numbers: GatherDimensionNumbers, slice_sizes: tuple[int, ...]
) -> None:
    expected = oracle(operand, indices, numbers, slice_sizes)
    for workers, by_rows in product((1, 2), (False, True)):
        target = np.zeros(expected.shape, operand.dtype)
        work = GatherWork(array_of(operand), array_of(indices), array_of(target), numbers, slice_sizes)
        parts = gather_parts(work)
        if by_rows and not gathers_rows(parts):
            continue
        parameters = block(*parts).words
        for lo, hi in even_ranges(work.unit_count, workers):
            (gather_rows if by_rows else gather)(parameters.ctypes.data, lo, hi, 0)
        assert target.tobytes() == expected.tobytes()


def operand_of(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 100, shape).astype(dtype)


EMBEDDING = GatherDimensionNumbers((1,), (0,), (0,), 1)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("width", [1, 2, 3, 30, 64, 0])
def test_embedding_rows(dtype: type, width: int) -> None:
    indices = np.random.default_rng(2).integers(0, 20, 11).astype(np.int32)
    compare(operand_of((20, width), dtype), indices, EMBEDDING, (1, width))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_index_types_and_clamping(dtype: str) -> None:
    limits = np.iinfo(dtype)
    indices = np.array([limits.min, limits.max, 0, 1, 5, 6, limits.max // 2 + 1, limits.max - 1], dtype)
    compare(operand_of((7, 3)), indices, EMBEDDING, (1, 3))


def test_batch_of_index_vectors_with_windows() -> None:
    indices = np.random.default_rng(3).integers(-2, 9, (4, 3, 2))
    compare(operand_of((6, 5, 7)), indices, GatherDimensionNumbers((1, 3), (0,), (2, 0), 2), (1, 5, 3))
    compare(operand_of((6, 5, 7)), indices, GatherDimensionNumbers((0, 1, 4), (), (0, 1), 2), (2, 5, 7))
    compare(operand_of((6, 5, 7)), indices, GatherDimensionNumbers((), (0, 1, 2), (0, 1), 2), (1, 1, 1))


def test_index_vector_dim_in_front() -> None:
    indices = np.random.default_rng(4).integers(0, 5, (2, 4, 3))
    compare(operand_of((6, 5, 7)), indices, GatherDimensionNumbers((0,), (0, 1), (0, 1), 0), (1, 1, 7))


def test_batching_dimensions() -> None:
    indices = np.random.default_rng(5).integers(0, 5, (4, 3))
    numbers = GatherDimensionNumbers((2,), (1,), (1,), 2, (0,), (0,))
    compare(operand_of((4, 6, 5)), indices, numbers, (1, 1, 5))
    swapped = GatherDimensionNumbers((), (1,), (1,), 2, (2, 0), (0, 1))
    compare(operand_of((3, 6, 4)), indices, swapped, (1, 1, 1))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_no_indices(shape: tuple[int, ...]) -> None:
    numbers = GatherDimensionNumbers((len(shape),), (0,), (0,), len(shape))
    compare(operand_of((4, 3)), np.zeros(shape, np.int64), numbers, (1, 3))


def test_one_scalar_index() -> None:
    compare(operand_of((4, 3)), np.array(2), GatherDimensionNumbers((0,), (0,), (0,), 0), (1, 3))


def test_random_gathers() -> None:
    rng = np.random.default_rng(6)
    for _ in range(300):
        rank = int(rng.integers(1, 5))
        shape = tuple(int(n) for n in rng.integers(1, 6, rank))
        start_index_map = tuple(int(d) for d in rng.permutation(rank)[: rng.integers(0, rank + 1)])
        collapsed = tuple(sorted(int(d) for d in rng.permutation(rank)[: rng.integers(0, rank + 1)]))
        slice_sizes = tuple(1 if d in collapsed else int(rng.integers(1, n + 1)) for d, n in enumerate(shape))
        batch_shape = [int(n) for n in rng.integers(1, 4, rng.integers(0, 3))]
        index_vector_dim = int(rng.integers(0, len(batch_shape) + 1))
        index_shape = batch_shape.copy()
        index_shape.insert(index_vector_dim, len(start_index_map))
        output_rank = len(batch_shape) + rank - len(collapsed)
        offset_dims = tuple(sorted(int(d) for d in rng.permutation(output_rank)[: rank - len(collapsed)]))
        numbers = GatherDimensionNumbers(offset_dims, collapsed, start_index_map, index_vector_dim)
        compare(operand_of(shape), rng.integers(-2, 7, index_shape), numbers, slice_sizes)


def test_what_does_not_fit_is_refused() -> None:
    operand, indices, target = operand_of((4, 3)), np.zeros(2, np.float32), np.zeros((2, 3), np.float32)
    for result, message in ((target, "integer type"), (indices, "rank 2")):
        work = GatherWork(array_of(operand), array_of(indices), array_of(result), EMBEDDING, (1, 3))
        with pytest.raises(InternalError, match=message):
            gather_parts(work)
