"""Strided views: an array seen through moves (transpose, slice, broadcast ...), without a copy."""

from __future__ import annotations

from collections.abc import Sequence

from engine.frozen import frozen
from engine.ir.affine import IndexMap, linear
from engine.ir.shape import Shape
from engine.ir.strides import byte_strides
from engine.program.buffer import Buffer


@frozen
class View:
    """Element (i0, i1, ...) is at offset + sum of i[d] * strides[d], all in bytes, in a buffer."""

    buffer: Buffer
    shape: Shape
    offset: int
    strides: tuple[int, ...]

    @property
    def item_bytes(self) -> int:
        return self.shape.dtype.itemsize


def whole(buffer: Buffer, shape: Shape) -> View:
    """The array as it is stored in its buffer, row-major."""
    return View(buffer, shape, 0, tuple(byte_strides(shape)))


def through(buffer: Buffer, base: Shape, index_map: IndexMap, seen: Shape) -> View:
    """A view of shape `seen` whose elements are in `buffer`, of shape `base`, at the index map's positions."""
    item = base.dtype.itemsize
    position = linear(base, index_map, seen.rank)
    return View(buffer, seen, position.constant * item, tuple(c * item for c in position.coefficients))


def stored_in(name: str, shape: Shape, order: Sequence[int], permanent: bool = False) -> View:
    """An array whose dimensions are stored in another order, the outermost first, in a new buffer."""
    stored = shape.with_dimensions(tuple(shape.dimensions[d] for d in order))
    strides = dict(zip(order, byte_strides(stored), strict=True))
    buffer = Buffer(name, stored, permanent=permanent)
    return View(buffer, shape, 0, tuple(strides[d] for d in range(shape.rank)))


def reordered(view: View, order: list[int]) -> View:
    """The view with its dimensions in another order: new dimension k is the old one order[k]."""
    shape = view.shape.with_dimensions(tuple(view.shape.dimensions[d] for d in order))
    return View(view.buffer, shape, view.offset, tuple(view.strides[d] for d in order))


def reversed_along(view: View, dimension: int) -> View:
    """A view of the same elements in reverse order along a dimension."""
    stride, size = view.strides[dimension], view.shape.dimensions[dimension]
    strides = tuple(-s if d == dimension else s for d, s in enumerate(view.strides))
    return View(view.buffer, view.shape, view.offset + (size - 1) * stride, strides)
