"""gather, scatter, dynamic-slice, dynamic-update-slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from engine.ir import Computation, GatherDimensionNumbers, Instruction, ScatterDimensionNumbers
from engine.ops.apply import UFUNCS, apply, flat, single_operation
from engine.ops.floats import computing
from engine.ops.registry import Value, definition


def _aligned(values: np.ndarray, positions: list[int], rank: int) -> np.ndarray:
    """An array whose dimension k becomes dimension positions[k] of `rank` dimensions."""
    sizes = [1] * rank
    for size, position in zip(values.shape, positions, strict=True):
        sizes[position] = size
    return values.reshape(sizes)


def _starts(
    numbers: GatherDimensionNumbers, indices: np.ndarray, rank: int, extents: Sequence[int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Starts of slices of these extents in each dimension of the operand, and the offsets in them.

    Both have the `rank` dimensions of the result. An index vector dim equal to the indices' rank means one component.
    """
    vector, offset_dims = numbers.index_vector_dim, iter(numbers.offset_dims)
    vectors = indices[..., None] if vector == indices.ndim else np.moveaxis(indices, vector, -1)
    batch = [d for d in range(rank) if d not in numbers.offset_dims]
    for d, extent in enumerate(extents):
        start = offset = np.zeros([1] * rank, np.int64)
        if d in numbers.start_index_map:
            start = _aligned(vectors[..., numbers.start_index_map.index(d)].astype(np.int64), batch, rank)
        if d in numbers.operand_batching_dims:
            of_indices = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(d)]
            dimension = of_indices - (of_indices > vector)
            start = start + _aligned(np.arange(vectors.shape[dimension]), [batch[dimension]], rank)
        elif d not in numbers.collapsed_slice_dims:
            offset = _aligned(np.arange(extent), [next(offset_dims)], rank)
        yield start, offset


@definition("gather")
def _gather(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Gathers slices, with start indices clamped so that each slice is within the operand."""
    operand, indices = operands
    sizes, shape = instruction["gather_slice_sizes"], instruction.array_shape
    if 0 in shape.dimensions:
        return np.empty(shape.dimensions, operand.dtype)
    starts = _starts(instruction["gather_dimension_numbers"], indices, shape.rank, sizes)
    limits = [whole - size for whole, size in zip(operand.shape, sizes, strict=True)]
    where = [np.clip(start, 0, most) + offset for most, (start, offset) in zip(limits, starts, strict=True)]
    return np.broadcast_to(operand[tuple(where)], shape.dimensions)


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
    rank, window = len(update_shape), iter(numbers.update_window_dims)
    absent = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    extents = [1 if d in absent else update_shape[next(window)] for d in range(len(shape))]
    starts = _starts(numbers.of_gather, indices, rank, extents)
    position, inside = np.zeros([1] * rank, np.int64), np.ones([1] * rank, np.bool_)
    for size, extent, (start, offset) in zip(shape, extents, starts, strict=True):
        inside = inside & (start >= 0) & (start <= size - extent)
        position = position * size + start + offset
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
