"""The definition of a user's vertex: its Python function on NumPy slices, in the process that has the function."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

import numpy as np

from engine.errors import UnsupportedOperation
from engine.ir import Instruction, Shape
from engine.ir.device_operations import VERTEX
from engine.ir.vertices import Slice, VertexCall, arrays_of
from engine.ops.registry import Value, custom_call

FUNCTIONS: WeakValueDictionary[str, Callable[..., None]] = WeakValueDictionary()
"""The functions of this process, by their code."""


@custom_call(VERTEX)
def _vertices(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Runs vertices. Raises UnsupportedOperation for a vertex of another process: only its machine code is here."""
    vertex = VertexCall.of(instruction)
    function = FUNCTIONS.get(vertex.code)
    if function is None:
        raise UnsupportedOperation(
            f"Expected a vertex whose Python function is in this process. Received: {vertex.name!r}, of another one. "
            f"Run it on the engine, which has its code."
        )
    shapes = arrays_of(instruction)
    slices, rows = vertex.slices(shapes), vertex.rows(shapes)
    results = [np.zeros(each.shape.dimensions, each.shape.dtype) for each in slices[len(operands) :]]
    for unit in range(vertex.units(shapes)):
        begin, end = unit * vertex.grain, min((unit + 1) * vertex.grain, rows)
        views = [
            _view(array, each, unit, begin, end) for array, each in zip((*operands, *results), slices, strict=True)
        ]
        function(*views)
    return results[0] if isinstance(instruction.shape, Shape) else tuple(results)


def _view(array: np.ndarray, each: Slice, unit: int, begin: int, end: int) -> np.ndarray:
    """The part of an array that belongs to rows begin <= row < end."""
    if each.split == "split":
        return array.reshape(-1, *each.dimensions[1:])[begin:end]
    return array[unit] if each.split == "reduction" else array
