"""Matrices of codelets of factors and solutions: their parameters, copies of them, and the order of values."""

from __future__ import annotations

from math import nan
from typing import Any

from engine.codelets.language.build import inner
from engine.codelets.language.element import NUMBA_NAMES
from engine.codelets.language.lanes import ITEM_BYTES
from engine.codelets.language.record import Address, Record
from engine.errors import UnsupportedOperation

Pointer = Any  # the result of `pointer`: Numba indexes it like an array
HUGE, TINY, STEP = 1e20, 1e-20, 2.0**60
"""A matrix whose largest element is not between TINY and HUGE is scaled by a power of STEP, because products might
overflow or vanish, those of float32 too. The power for the least float64 is finite."""


class Matrices(Record):
    """Parameters of the codelets of engine.ir.factorizations. Unit: one matrix, or row, of each array."""

    a: Address  # [rows, columns]
    b: Address = 0  # [rows, width], the right-hand sides of a linear system
    first: Address  # the results, in their order
    second: Address = 0
    third: Address = 0
    rows: int
    columns: int
    width: int  # columns of Q, or of right-hand sides
    with_vectors: int


@inner
def copy_scaled(source: Pointer, begin: int, target: Pointer, to: int, count: int, scale: float) -> None:
    """Copies `count` elements from element `begin` on, times a number."""
    for i in range(count):
        target[to + i] = source[begin + i] * scale


@inner
def transpose(source: Pointer, target: Pointer, rows: int, columns: int) -> None:
    """target[column, row] = source[row, column]."""
    for i in range(rows):
        for j in range(columns):
            target[j * rows + i] = source[i * columns + j]


@inner
def set_identity(a: Pointer, rows: int, columns: int) -> None:
    """Sets the diagonal to one, and all else to zero."""
    for i in range(rows):
        for j in range(columns):
            a[i * columns + j] = 0
        if i < columns:
            a[i * columns + i] = 1


@inner
def fill_nan(a: Pointer, size: int) -> None:
    """Fills an array with NaN."""
    for i in range(size):
        a[i] = nan


@inner
def scale_of(a: Pointer, size: int) -> float:
    """The power of two to multiply a matrix by; NaN if an element is not finite."""
    largest, check = 0.0, 0.0
    for i in range(size):
        value = abs(a[i] * 1.0)
        check += value * 0
        if value > largest:
            largest = value
    if check != 0:
        return check
    scale = 1.0
    while largest > HUGE:
        scale, largest = scale / STEP, largest / STEP
    while 0 < largest < TINY:
        scale, largest = scale * STEP, largest * STEP
    return scale


@inner
def sort_order(values: Pointer, order: Pointer, size: int, descending: int) -> None:
    """Finds the order of values, by insertion."""
    for i in range(size):
        at = i
        while at > 0 and (values[order[at - 1]] < values[i] if descending else values[order[at - 1]] > values[i]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = i


@inner
def put_columns(source: Pointer, order: Pointer, target: Pointer, rows: int, columns: int) -> None:
    """Writes rows of the source, [columns, rows], in their order as columns of the target."""
    for i in range(rows):
        for j in range(columns):
            target[i * columns + j] = source[order[j] * rows + i]


def matrix_type(opcode: str, element_type: str) -> tuple[str, int]:
    """The Numba type of elements, and their bytes. Raises UnsupportedOperation unless they are floats or complex."""
    supported = ("f32", "f64", "c64", "c128")
    if element_type not in supported:
        raise UnsupportedOperation(
            f"Expected a {opcode} of {', '.join(supported)}. Received: {element_type}. Convert around it."
        )
    return NUMBA_NAMES[element_type], ITEM_BYTES[element_type]
