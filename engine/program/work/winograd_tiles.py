"""The tiles of Winograd's convolutions: where they are in the two arrays of images that they connect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from engine.codelets.winograd_sizes import OUTPUTS, PADDING, POSITIONS, SIDE, WINDOW, whole_vectors
from engine.program.buffer import Address
from engine.program.work.base import Footprint

Strides = tuple[int, int, int]
"""Bytes between images, rows and columns."""


class Images(NamedTuple):
    """Images of contiguous features."""

    address: Address
    features: int
    strides: Strides


def footprints(
    images: int, field: tuple[int, int], inputs: Images, outputs: Images, written: Address
) -> Iterator[Footprint]:
    """Footprints from the first to the last element of inputs and of a `field` of outputs."""
    for each, more in ((inputs, WINDOW - 1), (outputs, 0)):
        counts = images, field[0] + more, field[1] + more
        last = sum((count - 1) * stride for count, stride in zip(counts, each.strides, strict=True))
        yield Footprint(each.address, min(last, 0), max(last, 0) + 4 * each.features, each.address is written)


def tile_fields(
    images: int, field: tuple[int, int], inputs: Images, outputs: Images, block: int, scratch: int
) -> dict[str, Any]:
    """The fields of `Tiles` for blocks of that many tiles, whose transforms begin after that many bytes of scratch."""
    rows, columns = (-(-size // OUTPUTS) for size in field)
    row, column = (each.reshape(-1) for each in np.indices((rows, columns)))
    kinds = (row == rows - 1) * (2 * (field[0] % OUTPUTS)) + (column == columns - 1) * (field[1] % OUTPUTS)
    starts = [OUTPUTS * (row * each.strides[1] + column * each.strides[2]) for each in (inputs, outputs)]
    tile = 4 * whole_vectors(inputs.features)
    tile += PADDING if tile // PADDING % 2 == 0 else 0
    position = block * tile + PADDING
    return {
        "a": inputs.address,
        "c": outputs.address,
        "features": inputs.features,
        "outputs": outputs.features,
        "tiles": images * rows * columns,
        "image_tiles": rows * columns,
        "image_a": inputs.strides[0],
        "image_c": outputs.strides[0],
        "offsets": np.stack([*starts, kinds], -1),
        "inputs": at_edges(SIDE, inputs.strides),
        "block_tiles": block,
        "position_a": position,
        "tile_a": tile,
        "positions_a": np.arange(POSITIONS) * position,
        "inputs_at": -(-scratch // PADDING) * PADDING,
    }


def at_edges(size: int, strides: Strides) -> np.ndarray:
    """Byte offsets of size x size positions, int64 [4, size**2].

    Entry 1 has no last column, 2 no last row, 3 neither: the one before stands for it, which changes no other output.
    """
    every, last = np.arange(size), size - 1
    rows, columns = (
        [np.minimum(every, last - missing) * stride for missing in (0, 1)] for stride in (strides[1], strides[2])
    )
    return np.array([np.add.outer(row, column).reshape(-1) for row in rows for column in columns], np.int64)
