"""Work that transforms tiles of one array to those of another, for Winograd's convolutions with wide kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from engine.codelets.convolutions.cook_toom import TileAxis
from engine.codelets.language.record import block
from engine.host.encoded import Encoded, HostWork
from engine.program.buffer import Address
from engine.program.work.base import Addressed, Footprint

Pair = tuple[int, int]
"""A number along rows, and one along columns."""


@dataclass(frozen=True, slots=True)
class TileArray(Addressed):
    """An array of tiles, with bytes between images, tiles, elements and phases. Its features are contiguous.

    Where tiles are parts of images, an image has `size` rows and columns. Tile i begins `step` * i + `first` elements
    after the image's first one, and elements outside the image do not exist. A tile's elements are `apart` from each
    other; its next phase begins one element later. Otherwise all elements of tiles exist, and `size` is a tile's.
    `skipped` counts the images of the array before and after those of the work.
    """

    address: Address
    image: int
    tiles: Pair
    elements: Pair
    size: Pair
    step: Pair = (0, 0)
    first: Pair = (0, 0)
    apart: Pair = (1, 1)
    phases: Pair = (0, 0)
    skipped: Pair = (0, 0)

    def span(self, images: int, tiles: Pair, phases: Pair) -> Pair:
        """The first and last byte of the elements that exist, of one feature."""
        last = [(images - 1) * self.image]
        for along in (0, 1):
            last.append((self.size[along] - 1) * self.elements[along])
            if not self.step[along]:
                last.append((tiles[along] - 1) * self.tiles[along])
                last.append((phases[along] - 1) * self.phases[along])
        begin = self.skipped[0] * self.image
        return begin + sum(min(0, each) for each in last), begin + sum(max(0, each) for each in last)

    def record(self) -> Any:
        """The words of `Tiled`."""
        from engine.codelets.convolutions.tile_transform import Tiled

        return Tiled(
            array=replace(self.address, offset=self.address.offset + self.skipped[0] * self.image),
            image=self.image,
            tile_row=self.tiles[0],
            tile_column=self.tiles[1],
            row=self.elements[0],
            column=self.elements[1],
            step_row=self.step[0],
            step_column=self.step[1],
            first_row=self.first[0],
            first_column=self.first[1],
            rows=self.size[0],
            columns=self.size[1],
            apart_row=self.apart[0],
            apart_column=self.apart[1],
            phase_row=self.phases[0],
            phase_column=self.phases[1],
            between=int(self.step != (0, 0)),
        )


def part_of_images(
    address: Address, strides: tuple[int, int, int], size: Pair, step: Pair, apart: Pair = (1, 1)
) -> TileArray:
    """Tiles that are parts of images, with `strides` of images, rows and columns.

    Tiles are `step` of their own elements from each other, and a tile's elements `apart` elements of the image.
    """
    image, row, column = strides
    step = step[0] * apart[0], step[1] * apart[1]
    tiles, elements = (row * step[0], column * step[1]), (row, column)
    return TileArray(address, image, tiles, elements, size, step, apart=apart, phases=elements)


@dataclass(frozen=True, slots=True)
class TileTransform(HostWork):
    """Transforms all phases of the `tiles` of each image along rows and columns, by `matrix_of(transform)`."""

    transform: str
    axes: tuple[TileAxis, TileAxis]
    source: TileArray
    target: TileArray
    images: int
    tiles: Pair
    features: int
    unit_rows: int
    phases: Pair = (1, 1)

    @property
    def unit_count(self) -> int:
        return -(-self.images * self.tiles[0] // self.unit_rows)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of both arrays."""
        for each in (self.source, self.target):
            begin, end = each.span(self.images, self.tiles, self.phases)
            yield Footprint(each.address, begin, end + 4 * self.features, each is self.target)

    def encode(self) -> Encoded:
        """The words of `Transform`."""
        from engine.codelets.convolutions.tile_transform import Transform, tile_transform, transform_scratch

        parameters = Transform(
            source=self.source.record(),
            target=self.target.record(),
            images=self.images,
            tile_rows=self.tiles[0],
            tile_columns=self.tiles[1],
            features=self.features,
            unit_rows=self.unit_rows,
            phase_rows=self.phases[0],
            phase_columns=self.phases[1],
        )
        codelet = tile_transform(self.transform, *self.axes)
        return Encoded.of(codelet, block(parameters), transform_scratch(self.features))


class KernelTransform(TileTransform):
    """The transform of a kernel, which does not change in a loop over micro-batches, nor if it is constant."""

    __slots__ = ()
    is_plain: ClassVar[bool] = True
