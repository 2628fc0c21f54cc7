"""Cells, the words that are copied, poisoned and compared bitwise: elements, or the two parts of complex ones."""

from __future__ import annotations

import numpy as np

from engine.ir.shape import Shape

BITS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def cell_type(shape: Shape) -> np.dtype:
    """The unsigned integer dtype by which a shape's cells are accessed."""
    dtype = shape.dtype
    return BITS[dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize]


def cells_of_element(shape: Shape) -> int:
    """The number of cells of an element: 1, or 2 for complex numbers."""
    return 2 if shape.dtype.kind == "c" else 1


def cell_count(shape: Shape) -> int:
    """The number of a shape's cells."""
    return shape.elements * cells_of_element(shape)


def position_of(shape: Shape, cell: int) -> str:
    """The name of a cell in messages: the index of its element."""
    element = cell // cells_of_element(shape)
    index = [int(i) for i in np.unravel_index(element, shape.dimensions)] if shape.rank else []
    return f"element {index}" if shape.rank else "the scalar"


def value_of(shape: Shape, cells: np.ndarray, cell: int) -> str:
    """The value of a cell in messages."""
    if shape.dtype.kind == "c":
        return str(cells.view(f"f{cells.itemsize}")[cell])
    return str(cells.view(shape.dtype)[cell])
