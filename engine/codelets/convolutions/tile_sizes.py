"""Tile sizes of Winograd's convolutions with wide kernels, in a file that passes read without loading the compiler."""

from __future__ import annotations

from typing import NamedTuple


class TileAxis(NamedTuple):
    """Tiles along a dimension, `outputs` outputs each; the kernel has `parts` parts of `taps` taps, padded with zeros.

    Part s of the kernel reads the inputs of the tile that is s tiles after an output's. With more than one part, there
    are as many taps as outputs.
    """

    outputs: int = 1
    taps: int = 1
    parts: int = 1

    @property
    def side(self) -> int:
        """Elements of a transformed tile."""
        return self.outputs + self.taps - 1

    @property
    def name(self) -> str:
        """Name of the tile sizes, on which the transforms depend."""
        return f"{self.outputs}x{self.taps}"

    def tiles(self, field: int) -> int:
        """Number of tiles of `outputs` outputs that cover a field."""
        return -(-field // self.outputs)

    def input_tiles(self, field: int) -> int:
        """Number of tiles of inputs that the tiles of outputs read."""
        return self.tiles(field) + self.parts - 1


FEW_TAPS = {
    1: (TileAxis(),),
    2: (TileAxis(4, 2), TileAxis(3, 2), TileAxis(2, 2)),
    3: (TileAxis(4, 3),),
    4: (TileAxis(4, 4),),
    5: (TileAxis(3, 5),),
}
"""Tiles by taps. Transformed tiles have six or seven elements, or up to five with two taps, so that few outputs are
outside of small images. Errors grow with tiles, and smaller tiles took longer. Five outputs of three taps would take as
long as four."""
PART = TileAxis(4, 4)
"""The axis for kernels with more taps."""


def axes_of(taps: int) -> tuple[TileAxis, ...]:
    """The tiles to choose from along a dimension with `taps` taps."""
    found = FEW_TAPS.get(taps)
    return (TileAxis(PART.outputs, PART.taps, -(-taps // PART.taps)),) if found is None else found
