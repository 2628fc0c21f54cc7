"""sort, by any comparator, of any number of operands."""

from __future__ import annotations

import numpy as np

from engine.ir import Computation, Instruction
from engine.ops.apply import apply_to_arrays
from engine.ops.registry import Value, definition


@definition("sort")
def _sort(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Sorts, always stably; the comparator's parameters 2k and 2k + 1 are two elements of operand k.

    With `limit` the results have only the first `limit` elements along the sorted dimension.
    """
    dimension, comparator = instruction["dimensions"][0], instruction.called[0]
    columns = [np.moveaxis(x, dimension, -1) for x in operands]
    order = _network(comparator, columns)[..., : instruction.get("limit")]
    results = tuple(np.moveaxis(np.take_along_axis(x, order, -1), -1, dimension) for x in columns)
    return results[0] if len(results) == 1 else results


def _network(comparator: Computation, columns: list[np.ndarray]) -> np.ndarray:
    """The order by a bitonic sorting network: each stage compares all elements with their partners at once."""
    length = columns[0].shape[-1]
    stages = max(0, length - 1).bit_length()
    lanes = np.arange(1 << stages)
    order = np.broadcast_to(lanes, (*columns[0].shape[:-1], lanes.size))
    for block in range(1, stages + 1):
        for bit in reversed(range(block)):
            others = order[..., lanes ^ (1 << bit)]
            takes_first = (lanes >> bit & 1) == (lanes >> block & 1)
            order = np.where(_comes_first(comparator, columns, others, order) == takes_first, others, order)
    return order[..., :length]


def _comes_first(comparator: Computation, columns: list[np.ndarray], i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Whether element i comes before j: equal ones keep their order, indices past the end come last."""
    length = columns[0].shape[-1]
    if length == 0:
        return i < j
    pairs = [[np.take_along_axis(x, np.minimum(k, length - 1), -1) for k in (i, j)] for x in columns]
    (less,) = apply_to_arrays(comparator, [x for pair in pairs for x in pair])
    (greater,) = apply_to_arrays(comparator, [x for pair in pairs for x in pair[::-1]])
    inside = (i < length) & (j < length)
    return np.where(inside & (less != greater), less, i < j)
