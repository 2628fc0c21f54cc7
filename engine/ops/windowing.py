"""reduce-window and select-and-scatter, with any bodies."""

from __future__ import annotations

import numpy as np

from engine.ir import Computation, Instruction, Window
from engine.ir.structured_shape_rules import window_count
from engine.ops.apply import apply_to_arrays
from engine.ops.indexing import combine_at
from engine.ops.reduction import reduce_last
from engine.ops.registry import Value, definition
from engine.ops.windows import padded_base, window_view


@definition("reduce-window")
def _reduce_window(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Reduces windows; padding and the gaps of a dilated base have the initial value, the body's neutral element."""
    half = len(operands) // 2
    arrays, initial = operands[:half], operands[half:]
    window: Window = instruction["window"]
    counts = [window_count(n, d) for n, d in zip(arrays[0].shape, window, strict=True)]
    # Views with strides are reduced in place: flattening them would copy a whole window for each output.
    views = [
        window_view(padded_base(x, value, window), counts, window) for x, value in zip(arrays, initial, strict=True)
    ]
    results = reduce_last(instruction.called[0], views, initial, len(counts))
    return results[0] if half == 1 else results


@definition("select-and-scatter")
def _select_and_scatter(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Scatters each source element to the element its window selects; `called` is select, then scatter.

    A later element, in row-major order, replaces the selected one where select(selected, later) is false.
    """
    operand, source, initial = operands
    select, scatter = instruction.called
    chosen = _selected(select, operand, source.shape, instruction["window"])
    result = np.full(operand.size, initial, operand.dtype)
    valid = chosen.reshape(-1) >= 0
    (result,) = combine_at(scatter, [result], chosen.reshape(-1)[valid], [source.reshape(-1)[valid]])
    return result.reshape(operand.shape)


def _selected(select: Computation, operand: np.ndarray, counts: tuple[int, ...], window: Window) -> np.ndarray:
    """The flat position in the operand that each window selects, -1 for a window of padding only."""
    flat, places = operand.reshape(-1), np.arange(operand.size).reshape(operand.shape)
    views = window_view(padded_base(places, np.array(-1), window), list(counts), window)
    chosen = np.full(counts, -1, np.int64)
    for offsets in np.ndindex(*(d.size for d in window)):
        place = views[(..., *offsets)]
        if np.any(place >= 0):
            (kept,) = apply_to_arrays(select, [flat[chosen], flat[place]])
            chosen = np.where((place >= 0) & ((chosen < 0) | ~kept), place, chosen)
    return chosen
