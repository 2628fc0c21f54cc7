"""The tiles of Winograd's convolutions: where they are in the two arrays of images that they connect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from engine.codelets.convolutions.cook_toom import PADDING, ROW_WORDS, positions, side, whole_vectors
from engine.codelets.language.scratch import ScratchLayout
from engine.machine_code.processor import lanes
from engine.program.buffer import Address
from engine.program.work.base import Footprint

Strides = tuple[int, int, int]
"""Bytes between images, rows and columns."""


class Depth(NamedTuple):
    """Slices of outputs of an image with depth, bytes between slices of inputs, and slices that an output reads."""

    slices: int = 1
    stride: int = 0
    taps: int = 1


class Images(NamedTuple):
    """Images of contiguous features; in images with `depth`, each slice of outputs counts as an image.

    `low` is the padding with zeros before the first row and column.
    """

    address: Address
    features: int
    strides: Strides
    size: tuple[int, int]
    low: tuple[int, int] = (0, 0)
    depth: Depth = Depth()
    item: int = 4
    """Bytes of an element."""


def footprints(images: int, inputs: Images, outputs: Images, written: Address) -> Iterator[Footprint]:
    """Footprints from the first to the last element of inputs and of outputs."""
    for each in (inputs, outputs):
        counts = images // each.depth.slices, *each.size
        last = [(count - 1) * stride for count, stride in zip(counts, each.strides, strict=True)]
        last.append((each.depth.slices + each.depth.taps - 2) * each.depth.stride)
        begin, end = sum(min(0, each) for each in last), sum(max(0, each) for each in last)
        yield Footprint(
            each.address, begin, end + each.item * each.features // each.depth.taps, each.address is written
        )


def tile_fields(
    images: int, inputs: Images, outputs: Images, tile: int, block: int, layout: ScratchLayout
) -> dict[str, Any]:
    """Fields of `Tiles` for blocks of `block` tiles; adds their areas to the layout of scratch.

    A tile has `tile` outputs along each side.
    """
    rows, columns = (-(-size // tile) for size in outputs.size)
    vector = 4 * lanes() * block
    position = whole_vectors(inputs.features) // lanes() * vector + PADDING
    return {
        "a": inputs.address,
        "c": outputs.address,
        "features": inputs.features,
        "outputs": outputs.features,
        "tiles": images * rows * columns,
        "image_rows": rows,
        "row_tiles": columns,
        **dict(zip(("image_a", "row_a", "column_a"), inputs.strides, strict=True)),
        **dict(zip(("slices", "slice_a", "depth"), inputs.depth, strict=True)),
        **dict(zip(("image_c", "row_c", "column_c"), outputs.strides, strict=True)),
        **dict(zip(("rows_a", "columns_a"), inputs.size, strict=True)),
        **dict(zip(("rows_c", "columns_c"), outputs.size, strict=True)),
        "first_row": -inputs.low[0],
        "first_column": -inputs.low[1],
        "block_tiles": block,
        "position_a": position,
        "vector_a": vector,
        "rows": layout.after_words(8 * ROW_WORDS * side(tile)),
        "zeros": layout.after_words(4 * whole_vectors(max(inputs.features, outputs.features))),
        "inputs_at": layout.after_words(positions(tile) * position),
    }
