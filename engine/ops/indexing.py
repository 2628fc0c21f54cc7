"""gather, scatter, dynamic-slice, dynamic-update-slice."""

from __future__ import annotations

import numpy as np

from engine.ir import Computation, GatherDimensionNumbers, Instruction, ScatterDimensionNumbers
from engine.ops.apply import UFUNCS, apply, flat, single_operation
from engine.ops.floats import computing
from engine.ops.registry import Value, definition


def _index_vectors(indices: np.ndarray, index_vector_dim: int) -> np.ndarray:
    """The indices as [batch..., components]; an `index_vector_dim` equal to the rank means one component."""
    if index_vector_dim == indices.ndim:
        return indices[..., None].astype(np.int64)
    return np.moveaxis(indices, index_vector_dim, -1).astype(np.int64)


def _aligned(values: np.ndarray, positions: list[int], rank: int) -> np.ndarray:
    """An array whose dimension k becomes dimension positions[k] of `rank` dimensions."""
    sizes = [1] * rank
    for size, position in zip(values.shape, positions, strict=True):
        sizes[position] = size
    return values.reshape(sizes)


@definition("gather")
def _gather(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Gathers slices, with start indices clamped so that each slice is within the operand."""
    operand, start_indices = operands
    numbers: GatherDimensionNumbers = instruction["gather_dimension_numbers"]
    sizes = instruction["gather_slice_sizes"]
    rank = instruction.array_shape.rank
    vectors = _index_vectors(start_indices, numbers.index_vector_dim)
    batch_positions = [d for d in range(rank) if d not in numbers.offset_dims]
    window_dims = [
        d
        for d in range(operand.ndim)
        if d not in numbers.collapsed_slice_dims and d not in numbers.operand_batching_dims
    ]
    where: list[np.ndarray] = []
    for d in range(operand.ndim):
        index = np.zeros([1] * rank, np.int64)
        if d in numbers.start_index_map:
            start = vectors[..., numbers.start_index_map.index(d)]
            start = np.clip(start, 0, operand.shape[d] - sizes[d])
            index = index + _aligned(start, batch_positions, rank)
        if d in numbers.operand_batching_dims:
            batch = numbers.operand_batching_dims.index(d)
            index = index + _batch_index(
                vectors,
                numbers.start_indices_batching_dims[batch],
                numbers.index_vector_dim,
                batch_positions,
                rank,
            )
        if d in window_dims:
            offset = numbers.offset_dims[window_dims.index(d)]
            index = index + _aligned(np.arange(sizes[d]), [offset], rank)
        where.append(index)
    if not where:
        return np.broadcast_to(operand, instruction.array_shape.dimensions)
    if 0 in instruction.array_shape.dimensions:
        return np.empty(instruction.array_shape.dimensions, operand.dtype)
    return np.broadcast_to(operand[tuple(where)], instruction.array_shape.dimensions)


def _batch_index(
    vectors: np.ndarray, indices_dim: int, index_vector_dim: int, batch_positions: list[int], rank: int
) -> np.ndarray:
    """Operand indices along a batching dimension: positions in the indices themselves."""
    dimension = indices_dim - (indices_dim > index_vector_dim)
    return _aligned(np.arange(vectors.shape[dimension]), [batch_positions[dimension]], rank)


@definition("scatter")
def _scatter(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Combines updates one index vector after the other, in row-major order of the indices.

    An update whose window is not within the operand is skipped whole, as in XLA's compilers.
    """
    count = (len(operands) - 1) // 2
    inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    where, inside = _scatter_positions(instruction, inputs[0].shape, indices, updates[0].shape)
    flat = [np.array(x).reshape(-1) for x in inputs]
    by_index = _by_index(instruction["scatter_dimension_numbers"], updates[0].ndim)
    chosen = [u.transpose(by_index).reshape(-1)[inside] for u in updates]
    results = combine_at(instruction.called[0], flat, where[inside], chosen)
    shaped = tuple(r.reshape(x.shape) for r, x in zip(results, inputs, strict=True))
    return shaped[0] if count == 1 else shaped


def _scatter_positions(
    instruction: Instruction, shape: tuple[int, ...], indices: np.ndarray, update_shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """The flat target position of each element of the updates, and whether its window is within the operand.

    Both are flat, in the order of the index vectors.
    """
    numbers: ScatterDimensionNumbers = instruction["scatter_dimension_numbers"]
    rank = len(update_shape)
    vectors = _index_vectors(indices, numbers.index_vector_dim)
    batch_positions = [d for d in range(rank) if d not in numbers.update_window_dims]
    absent = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    window_dims = [d for d in range(len(shape)) if d not in absent]
    position, inside = np.zeros([1] * rank, np.int64), np.ones([1] * rank, np.bool_)
    for d, size in enumerate(shape):
        index = np.zeros([1] * rank, np.int64)
        extent = 1
        if d in numbers.scatter_dims_to_operand_dims:
            start = vectors[..., numbers.scatter_dims_to_operand_dims.index(d)]
            index = index + _aligned(start, batch_positions, rank)
        if d in numbers.input_batching_dims:
            indices_dim = numbers.scatter_indices_batching_dims[numbers.input_batching_dims.index(d)]
            index = index + _batch_index(vectors, indices_dim, numbers.index_vector_dim, batch_positions, rank)
        start = index
        if d in window_dims:
            update_dim = numbers.update_window_dims[window_dims.index(d)]
            extent = update_shape[update_dim]
            index = index + _aligned(np.arange(extent), [update_dim], rank)
        inside = inside & (start >= 0) & (start <= size - extent)
        position = position * size + index
    by_index = _by_index(numbers, rank)
    flat, kept = (np.broadcast_to(x, update_shape).transpose(by_index).reshape(-1) for x in (position, inside))
    return flat, kept


def _by_index(numbers: ScatterDimensionNumbers, rank: int) -> list[int]:
    """The permutation of the updates' dimensions that puts the index vectors' before the windows'."""
    return sorted(range(rank), key=lambda d: d in numbers.update_window_dims)


def combine_at(
    body: Computation, inputs: list[np.ndarray], where: np.ndarray, updates: list[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """The new flat arrays after body(inputs, updates) at the flat positions `where`, one update after another."""
    operation = single_operation(body)
    if len(inputs) == 1 and operation == "assign":
        result = inputs[0].copy()
        _last, first_seen = np.unique(where[::-1], return_index=True)
        latest = len(where) - 1 - first_seen
        result[where[latest]] = updates[0][latest]
        return (result,)
    if len(inputs) == 1 and operation in UFUNCS:
        wide = np.array(computing(inputs[0]))
        UFUNCS[operation].at(wide, where, computing(updates[0]))
        return (wide.astype(inputs[0].dtype),)
    results = [x.copy() for x in inputs]
    for k, position in enumerate(where):
        arguments = [np.asarray(r[position]) for r in results] + [np.asarray(u[k]) for u in updates]
        for result, part in zip(results, flat(apply(body, arguments)), strict=True):
            result[position] = part
    return tuple(results)


def _clamped_slices(shape: tuple[int, ...], sizes: tuple[int, ...], starts: list[np.ndarray]) -> tuple[slice, ...]:
    """Slices with starts clamped so that they are within the operand."""
    spans = []
    for size, span, start in zip(shape, sizes, starts, strict=True):
        first = min(max(int(start), 0), size - span)
        spans.append(slice(first, first + span))
    return tuple(spans)


@definition("dynamic-slice")
def _dynamic_slice(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    x, *starts = operands
    return np.asarray(x[_clamped_slices(x.shape, instruction["dynamic_slice_sizes"], starts)])


@definition("dynamic-update-slice")
def _dynamic_update_slice(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    x, update, *starts = operands
    result = x.copy()
    result[_clamped_slices(x.shape, update.shape, starts)] = update
    return result
