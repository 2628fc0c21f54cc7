"""Images of contiguous features, which convolutions and pooling read and write in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from engine.codelets.convolutions.cook_toom import Pair
from engine.frozen import frozen
from engine.ir.shape import Shape
from engine.program.buffer import Address
from engine.program.program import Partition
from engine.program.work.base import Addressed, Footprint

Strides = tuple[int, int, int]
"""Bytes between images, rows and columns."""


class TilePart(NamedTuple):
    """The elements of images that tiles of one part read, from `offset` bytes on.

    The first tile begins at the row and column `first` of these elements; `size` are those that exist.
    """

    offset: int
    first: Pair
    size: Pair


class Depth(NamedTuple):
    """Slices of outputs of an image with depth, bytes between slices of inputs, and slices that an output reads."""

    slices: int = 1
    stride: int = 0
    taps: int = 1


@frozen
class Images(Addressed):
    """Images of contiguous features; in images with `depth`, each slice of outputs counts as an image.

    `low` is the padding with zeros before the first row and column.
    """

    address: Address
    features: int
    strides: Strides
    size: tuple[int, int]
    low: tuple[int, int] = (0, 0)
    depth: Depth = Depth()
    element_type: str = "f32"

    def footprint(self, images: int, writes: bool) -> Footprint:
        """The bytes from the first to the last element."""
        counts = images // self.depth.slices, *self.size
        last = [(count - 1) * stride for count, stride in zip(counts, self.strides, strict=True)]
        last.append((self.depth.slices + self.depth.taps - 2) * self.depth.stride)
        begin, end = sum(min(0, each) for each in last), sum(max(0, each) for each in last)
        return Footprint(self.address, begin, end + self.column_bytes, writes)

    @property
    def column_bytes(self) -> int:
        """Bytes of the features of a column."""
        return Shape(self.element_type).dtype.itemsize * self.features

    def partition(self, images: int, unit_rows: int) -> Partition | None:
        """The elements that each unit of rows, counted through all images, writes; None unless images are dense."""
        (image, *inside), (rows, columns) = self.strides, self.size
        row, elements = self.column_bytes * columns, self.features * columns
        dense = inside == [row, self.column_bytes] and (image == rows * row or images == 1)
        whole = self.address.buffer.shape.elements == images * rows * elements
        return Partition(elements, images * rows, unit_rows) if dense and whole else None

    def record(self, height: int, parts: tuple[TilePart, ...], steps: Pair = (1, 1)) -> Any:
        """The words of `TiledImages` for tiles of these parts, whose elements are `steps` of the images' apart.

        A tile has `height` rows of elements.
        """
        from engine.codelets.convolutions import winograd_tiles

        image, row, column = self.strides
        return winograd_tiles.TiledImages(
            array=self.address,
            height=height,
            item=Shape(self.element_type).dtype.itemsize,
            features=self.features,
            image=image,
            row=row * steps[0],
            column=column * steps[1],
            slices=self.depth.slices,
            slice=self.depth.stride,
            parts=np.array([(part.offset, *part.first, *part.size) for part in parts], np.int64),
        )
