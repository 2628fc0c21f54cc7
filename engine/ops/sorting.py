"""sort, by any comparator, of any number of operands."""

from __future__ import annotations

from functools import cmp_to_key, partial

import numpy as np

from engine.ir import Computation, Instruction
from engine.ops.apply import apply, apply_to_arrays, is_elementwise
from engine.ops.registry import Value, definition


@definition("sort")
def _sort(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Sorts, always stably; the comparator's parameters 2k and 2k + 1 are two elements of operand k.

    With `limit` the results have only the first `limit` elements along the sorted dimension.
    """
    dimension, comparator = instruction["dimensions"][0], instruction.called[0]
    columns = [np.moveaxis(x, dimension, -1) for x in operands]
    ordering = _network if is_elementwise(comparator) else _one_by_one
    order = ordering(comparator, columns)[..., : instruction.get("limit")]
    results = tuple(np.moveaxis(np.take_along_axis(x, order, -1), -1, dimension) for x in columns)
    return results[0] if len(results) == 1 else results


def _one_by_one(comparator: Computation, columns: list[np.ndarray]) -> np.ndarray:
    order = np.empty(columns[0].shape, np.int64)
    for position in np.ndindex(*columns[0].shape[:-1]):
        rows = [x[position] for x in columns]

        key = cmp_to_key(partial(_compared, comparator, rows))
        order[position] = sorted(range(columns[0].shape[-1]), key=key)
    return order


def _compared(comparator: Computation, rows: list[np.ndarray], i: int, j: int) -> int:
    """Negative when element i comes first, positive when element j does, 0 for equal ones."""

    def less(left: int, right: int) -> int:
        return int(bool(apply(comparator, [np.asarray(row[k]) for row in rows for k in (left, right)])))

    return less(j, i) - less(i, j)


def _network(comparator: Computation, columns: list[np.ndarray]) -> np.ndarray:
    """The order by a bitonic sorting network: each stage compares all its pairs at once."""
    length = columns[0].shape[-1]
    width = 1 << max(0, length - 1).bit_length()
    order = np.broadcast_to(np.arange(width), (*columns[0].shape[:-1], width)).copy()
    lanes = np.arange(width)
    block = 2
    while block <= width:
        distance = block // 2
        while distance:
            left = lanes[(lanes & distance) == 0]
            right = left | distance
            ascending = (left & block) == 0
            swapped = _comes_first(comparator, columns, order[..., right], order[..., left]) == ascending
            first, second = order[..., left], order[..., right]
            order[..., left] = np.where(swapped, second, first)
            order[..., right] = np.where(swapped, first, second)
            distance //= 2
        block *= 2
    return order[..., :length]


def _comes_first(comparator: Computation, columns: list[np.ndarray], i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Whether element i comes before j: equal ones keep their order, indices past the end come last."""
    length = columns[0].shape[-1]
    if length == 0:
        return i < j
    pairs = [
        (
            np.take_along_axis(x, np.minimum(i, length - 1), -1),
            np.take_along_axis(x, np.minimum(j, length - 1), -1),
        )
        for x in columns
    ]
    (less,) = apply_to_arrays(comparator, [x for pair in pairs for x in pair])
    (greater,) = apply_to_arrays(comparator, [x for pair in pairs for x in pair[::-1]])
    inside = (i < length) & (j < length)
    return np.where(inside & (less != greater), less, i < j)
