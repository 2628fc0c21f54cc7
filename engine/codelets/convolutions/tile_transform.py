"""Linear transforms of tiles of arrays with contiguous features, along rows and columns: `winograd_tiles`.

Element (p, q) of phase (f, g) of tile (i, j) of an image is at image * z + tile_row * i + tile_column * j +
row * (first_row + apart_row * p) + column * (first_column + apart_column * q) + phase_row * f + phase_column * g bytes.
It exists if step_row * i + first_row + apart_row * p + between * f is one of the array's rows, and likewise its column;
others are read as zeros, and are not written. All phases of a tile have the same transform.

Work that transforms tiles of one array to those of another, for Winograd's convolutions with wide kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from engine.codelets.convolutions import cook_toom
from engine.codelets.convolutions.cook_toom import Matrix, TileAxis
from engine.codelets.convolutions.linear_forms import transforming
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.memory import load_i64, store_f32, store_i64
from engine.codelets.language.record import Address, Record, block, word
from engine.codelets.language.scratch import ScratchSpace, after, space_of
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.base import Addressed, Footprint


class Tiled(Record):
    """An array of tiles: its address, bytes between images, tiles, elements and phases, and which elements exist."""

    array: Address
    image: int
    tile_row: int
    tile_column: int
    row: int
    column: int
    step_row: int
    step_column: int
    first_row: int
    first_column: int
    rows: int
    columns: int
    apart_row: int
    apart_column: int
    phase_row: int
    phase_column: int
    between: int


class Transform(Record):
    """Parameters. Unit: `unit_rows` rows of tiles, counted through all images."""

    source: Tiled
    target: Tiled
    images: int
    tile_rows: int
    tile_columns: int
    features: int
    unit_rows: int
    phase_rows: int
    phase_columns: int


def transform_scratch(features: int) -> ScratchSpace:
    """The scratch: offsets of elements to read and to write, two tables of addresses, zeros, and discarded elements."""
    return space_of(*4 * (8 * MOST_ELEMENTS,), 4 * features, 4 * features)


MOST_ELEMENTS = 64
"""Most elements of a tile."""


def matrix_of(axis: TileAxis, kind: str) -> Matrix:
    """The matrix of a transform along a dimension.

    `kind`: "inputs" (B'), "taps" (G), "products" (A'), "gradients" (A) or "sums" (G').
    """
    if axis.side == 1:
        return cook_toom.IDENTITY
    if kind == "inputs":
        return cook_toom.of_inputs(axis.side)
    if kind in ("taps", "sums"):
        taps = cook_toom.of_taps(axis.side, axis.taps)
        return taps if kind == "taps" else cook_toom.transposed(taps)
    products = cook_toom.of_products(axis.side, axis.outputs)
    return products if kind == "products" else cook_toom.transposed(products)


@inner
def fill_offsets(tiled: int, height: int, width: int, table: int) -> None:
    """Fills a table with the offsets of a tile's elements from the first one, row by row."""
    pitch = word(tiled, Tiled.APART_ROW) * word(tiled, Tiled.ROW)
    step = word(tiled, Tiled.APART_COLUMN) * word(tiled, Tiled.COLUMN)
    for p in range(height):
        for q in range(width):
            store_i64(table + 8 * (width * p + q), p * pitch + q * step)


@inner
def fill_addresses(
    tiled: int, at: int, row: int, column: int, height: int, width: int, outside: int, offsets: int, table: int
) -> None:
    """Fills a table with addresses of a tile's elements, row by row; elements that do not exist are at `outside`."""
    apart_row, apart_column = word(tiled, Tiled.APART_ROW), word(tiled, Tiled.APART_COLUMN)
    rows, columns = word(tiled, Tiled.ROWS), word(tiled, Tiled.COLUMNS)
    for p in range(height):
        inside = 0 <= row + apart_row * p and row + apart_row * p < rows
        for q in range(width):
            there = column + apart_column * q
            exists = inside and 0 <= there and there < columns
            store_i64(table + 8 * q, at + load_i64(offsets + 8 * q) if exists else outside)
        table += 8 * width
        offsets += 8 * width


@inner
def has_all(tiled: int, row: int, column: int, height: int, width: int) -> bool:
    """Whether all elements of a tile exist."""
    last_row = row + word(tiled, Tiled.APART_ROW) * (height - 1)
    last_column = column + word(tiled, Tiled.APART_COLUMN) * (width - 1)
    high = last_row < word(tiled, Tiled.ROWS) and last_column < word(tiled, Tiled.COLUMNS)
    return row >= 0 and column >= 0 and high


@inner
def first_row(tiled: int, tile_row: int, f: int) -> int:
    """The row of a tile's first element in a phase."""
    return tile_row * word(tiled, Tiled.STEP_ROW) + word(tiled, Tiled.FIRST_ROW) + f * word(tiled, Tiled.BETWEEN)


@inner
def first_column(tiled: int, tile_column: int, g: int) -> int:
    """The position of a tile's first column, in phase `g`."""
    at = tile_column * word(tiled, Tiled.STEP_COLUMN) + word(tiled, Tiled.FIRST_COLUMN)
    return at + g * word(tiled, Tiled.BETWEEN)


@inner
def first_address(tiled: int, image: int, tile_row: int, tile_column: int, f: int, g: int) -> int:
    """The address of a tile's first element, in phases `f` and `g`."""
    at = word(tiled, Tiled.ARRAY) + image * word(tiled, Tiled.IMAGE) + tile_row * word(tiled, Tiled.TILE_ROW)
    at += tile_column * word(tiled, Tiled.TILE_COLUMN) + word(tiled, Tiled.FIRST_ROW) * word(tiled, Tiled.ROW)
    at += word(tiled, Tiled.FIRST_COLUMN) * word(tiled, Tiled.COLUMN)
    return at + f * word(tiled, Tiled.PHASE_ROW) + g * word(tiled, Tiled.PHASE_COLUMN)


@cache
def tile_transform(kind: str, row_axis: TileAxis, column_axis: TileAxis) -> Codelet:
    """The codelet `winograd_tiles` of a kind that `matrix_of` takes."""
    rows, columns = matrix_of(row_axis, kind), matrix_of(column_axis, kind)
    name = f"winograd_tiles_{kind}_{row_axis.name}_{column_axis.name}"
    transform_features = transforming(name, rows, columns)
    height, width, results, wide = len(rows[0]), len(columns[0]), len(rows), len(columns)

    @inner
    def transform_tile(
        source: int, target: int, image: int, i: int, j: int, f: int, g: int, scratch: int, features: int
    ) -> None:
        to_read, to_write = scratch, after(scratch, 8 * MOST_ELEMENTS)
        sources = after(to_write, 8 * MOST_ELEMENTS)
        targets = after(sources, 8 * MOST_ELEMENTS)
        zeros = after(targets, 8 * MOST_ELEMENTS)
        read, written = first_address(source, image, i, j, f, g), first_address(target, image, i, j, f, g)
        row, column = first_row(source, i, f), first_column(source, j, g)
        if not has_all(source, row, column, height, width):
            fill_addresses(source, read, row, column, height, width, zeros, to_read, sources)
            to_read, read = sources, 0
        row, column = first_row(target, i, f), first_column(target, j, g)
        if not has_all(target, row, column, results, wide):
            dropped = after(zeros, 4 * features)
            fill_addresses(target, written, row, column, results, wide, dropped, to_write, targets)
            to_write, written = targets, 0
        transform_features(to_read, to_write, read, written, features)

    def transform_units(parameters: int, lo: int, hi: int, scratch: int) -> None:
        scratch += RESERVED_SCRATCH
        features, to_write = word(parameters, Transform.FEATURES), after(scratch, 8 * MOST_ELEMENTS)
        zeros = after(after(after(to_write, 8 * MOST_ELEMENTS), 8 * MOST_ELEMENTS), 8 * MOST_ELEMENTS)
        for i in range(features):
            store_f32(zeros + 4 * i, 0.0)
        source, target = parameters + 8 * Transform.SOURCE, parameters + 8 * Transform.TARGET
        fill_offsets(source, height, width, scratch)
        fill_offsets(target, results, wide, to_write)
        tile_rows, unit_rows = word(parameters, Transform.TILE_ROWS), word(parameters, Transform.UNIT_ROWS)
        phase_rows, phase_columns = word(parameters, Transform.PHASE_ROWS), word(parameters, Transform.PHASE_COLUMNS)
        for row in range(lo * unit_rows, min(hi * unit_rows, word(parameters, Transform.IMAGES) * tile_rows)):
            image, i = row // tile_rows, row % tile_rows
            for j in range(word(parameters, Transform.TILE_COLUMNS)):
                for f in range(phase_rows):
                    for g in range(phase_columns):
                        transform_tile(source, target, image, i, j, f, g, scratch, features)

    return Codelet(transform_units, name, in_vectors=True)


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
