"""Byte strides of arrays and of loops over them, and the types of indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.errors import InternalError
from engine.ir.shape import SIGNED, UNSIGNED, Shape


def byte_strides(shape: Shape) -> list[int]:
    """Row-major strides in bytes."""
    return [prod(shape.dimensions[d + 1 :]) * shape.dtype.itemsize for d in range(shape.rank)]


def merge(dimensions: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Collapses neighbouring (size, stride, stride, ...) where all strides allow it, row-major; drops size 1."""
    merged: list[tuple[int, ...]] = []
    for size, *strides in dimensions:
        if size == 1:
            continue
        if merged and all(outer == size * own for outer, own in zip(merged[-1][1:], strides, strict=True)):
            merged[-1] = (merged[-1][0] * size, *strides)
        else:
            merged.append((size, *strides))
    return merged


def index_signed(indices: Shape) -> int:
    """1 for a signed and 0 for an unsigned integer type; raises InternalError for any other."""
    if indices.element_type not in SIGNED | UNSIGNED:
        raise InternalError(f"Expected indices of an integer type. Received: {indices}.")
    return int(indices.element_type in SIGNED)
