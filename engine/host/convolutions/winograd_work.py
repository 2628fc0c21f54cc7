"""Work of convolutions, and gradients by their kernels, by Winograd's transforms of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from engine.codelets.convolutions.cook_toom import (
    GRADIENT_BLOCK,
    KERNEL_BLOCK,
    LARGE_KERNEL,
    LEAST_GRADIENT_TILES,
    LEAST_TILES,
    MOST_TILES,
    PADDING,
    Axes,
    Pair,
    block_tiles,
    position_bytes,
    positions,
    taps_of,
    tiles_of,
    transform_of,
    whole_vectors,
)
from engine.codelets.language.build import MachineCode
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.products.contract_fields import right_operand
from engine.codelets.products.micro_kernel import panel_columns
from engine.frozen import frozen
from engine.host.convolutions.images import Images, TilePart
from engine.host.convolutions.zero_sums import ReadTaps
from engine.ir.shape import Shape
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.processor import lanes
from engine.program.buffer import Address
from engine.program.work.base import Footprint
from engine.program.work.offsets import Offsets, table


def _flags_of_tap(inputs: int, outputs: int) -> int:
    """Flags of a tap: one for each unit of the kernel's transform that has elements of it."""
    return -(-outputs // panel_columns()) * -(-inputs // KERNEL_BLOCK)


def transformed_bytes(parts: int, inputs: int, outputs: int, axes: Axes) -> int:
    """Bytes of a transformed kernel of some parts, with its flags."""
    of_positions = positions(axes) * position_bytes(parts * inputs, outputs)
    return of_positions + 4 * parts * taps_of(axes) * _flags_of_tap(inputs, outputs)


@frozen
class WinogradKernel(HostWork):
    """Transforms a kernel, whose elements have the byte offsets `k_b` [tap, input feature].

    `columns` is the number of output features, and `stride_b` the bytes between them. `taps` [part, tap] are the
    numbers of the taps of each part of the kernel, by row and column; -1 stands for zeros.
    """

    is_plain: ClassVar[bool] = True

    kernel: Address
    transformed: Address
    k_b: Offsets
    taps: Offsets
    features: int
    columns: int
    stride_b: int
    element_type: str
    axes: Axes

    @property
    def parts(self) -> int:
        """The number of parts of the kernel."""
        return len(self.taps) // taps_of(self.axes)

    @property
    def unit_count(self) -> int:
        return self.parts * _flags_of_tap(self.features, self.columns)

    def encode(self) -> Encoded:
        """The fields of B, then those of the transform; scratch has offsets of columns, and the taps of a part."""
        from engine.codelets.convolutions.linear_forms import transforming
        from engine.codelets.convolutions.winograd import TAP_BYTES, Kernel, kernel_transform

        item, layout = Shape(self.element_type).dtype.itemsize, ScratchLayout()
        layout.area(8 * panel_columns())
        position, to = position_bytes(self.parts * self.features, self.columns), self.transformed
        parameters = Kernel(
            **vars(right_operand(self.kernel, self.k_b, self.columns, self.stride_b, item)),
            transformed=self.transformed,
            features=self.features,
            parts=self.parts,
            tap_count=taps_of(self.axes),
            numbers=self.taps.table,
            taps=np.arange(taps_of(self.axes)) * TAP_BYTES,
            positions=np.arange(positions(self.axes)) * position,
            packed=layout.after_words(taps_of(self.axes) * TAP_BYTES),
            flags=replace(to, offset=to.offset + positions(self.axes) * position),
        )
        calls = ((Kernel.TRANSFORM, transforming(transform_of("taps", self.axes))),)
        return Encoded.of(kernel_transform(self.element_type), block(parameters), layout.space(), calls)


@frozen
class WinogradTiles(HostWork):
    """Work on transformed tiles of `images` images A, and of outputs or their gradients, C.

    Tiles read the elements of `parts`, which are `steps` apart, with all features of A. What they read outside of a
    part is zero. For several parts of the kernel they read further tiles, too.
    """

    images: int
    a: Images
    c: Images
    axes: Axes
    parts: tuple[TilePart, ...]
    steps: Pair

    @property
    def tiles(self) -> Pair:
        """Rows and columns of an image's tiles."""
        return tiles_of(self.axes, self.c.size)

    @property
    def tile_count(self) -> int:
        """The tiles of all images."""
        return self.images * prod(self.tiles)

    @property
    def features(self) -> int:
        """Features of all parts, also of the kernel's, over which products sum."""
        return prod(axis.parts for axis in self.axes) * len(self.parts) * self.a.features

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the products."""
        return self.tile_count * positions(self.axes) * self.features * self.c.features

    @property
    def part_features(self) -> int:
        """Features of A, in whole vectors if there are several parts."""
        return self.a.features if len(self.parts) == 1 else whole_vectors(self.a.features)

    def fields(self, least: int, layout: ScratchLayout) -> tuple[dict[str, Any], np.ndarray]:
        """Fields of `Tiles` and of blocks of at least `least` tiles, and offsets of the kernel's parts in scratch.

        Adds areas to the scratch's layout.
        """
        features, (rows, columns) = self.part_features * len(self.parts), self.tiles
        below, beside = (axis.parts - 1 for axis in self.axes)
        tiles = block_tiles(features, self.c.features, self.axes, least)
        if below and columns < tiles:
            tiles = -(-tiles // columns) * columns
        width = min(columns, tiles) + beside
        vector = 4 * lanes() * _transformed_tiles(tiles, rows, columns, below, beside)
        position = whole_vectors(features) // lanes() * vector + PADDING
        zeros = self._zero_bytes(width)
        fields = {
            "a": self.a.record(self.axes[0].side, self.parts, self.steps),
            "c": self.c.record(self.axes[0].outputs, (TilePart(0, (0, 0), self.c.size),)),
            "tile_rows": self.axes[0].outputs,
            "tile_columns": self.axes[1].outputs,
            "positions": positions(self.axes),
            "features": features,
            "tiles": self.tile_count,
            "image_rows": rows,
            "row_tiles": columns,
            "below": below,
            "beside": beside,
            "width": width,
            "rows": layout.after_words(8 * self.axes[0].side),
            "zeros": layout.after_words(zeros),
            "zero_bytes": zeros,
            "block_tiles": tiles,
            "vector_a": vector,
            "position_a": position,
            "inputs_at": layout.after_words(positions(self.axes) * position),
        }
        return fields, table((below + 1, width * 4 * lanes()), (beside + 1, 4 * lanes()))

    def calls(self, of_a: MachineCode, of_c: MachineCode) -> tuple[tuple[int, MachineCode], ...]:
        """The words of `Tiles` with the transforms of A and of C."""
        from engine.codelets.convolutions.winograd_tiles import TiledImages, Tiles

        return (Tiles.A + TiledImages.TRANSFORM, of_a), (Tiles.C + TiledImages.TRANSFORM, of_c)

    def _zero_bytes(self, tiles: int) -> int:
        """Bytes of a row of zeros, in words, that stands for a row of `tiles` tiles of any images."""
        columns = self.axes[1].outputs * (tiles - 1) + self.axes[1].side
        strides = abs(self.a.strides[2] * self.steps[1]), abs(self.c.strides[2])
        features = whole_vectors(max(self.a.features, self.c.features))
        return -(-max(strides) * columns // 8) * 8 + 4 * features


def _transformed_tiles(tiles: int, rows: int, columns: int, below: int, beside: int) -> int:
    """Most tiles that a block of tiles reads, with those `below` and `beside` them.

    Blocks that read tiles below are rows of tiles, or parts of one or two rows.
    """
    if not below:
        return tiles + (-(-tiles // columns) + 1) * beside
    if tiles < columns:
        return 2 * (below + 1) * (tiles + beside)
    runs = tiles // columns
    return (runs + (1 + -(-runs // rows)) * below) * (columns + beside)


@frozen
class WinogradProduct(WinogradTiles):
    """Convolves images with a transformed kernel. A unit has `unit_tiles` tiles, counted through all images."""

    transformed: Address
    unit_tiles: int
    taps: ReadTaps

    @property
    def unit_count(self) -> int:
        return -(-self.tile_count // self.unit_tiles)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of the images."""
        yield from (self.a.footprint(self.images, False), self.c.footprint(self.images, True))

    def encode(self) -> Encoded:
        """The words of `TransformedProduct`; scratch has tables, transformed inputs, and products."""
        from engine.codelets.convolutions.winograd import TransformedProduct, winograd_product
        from engine.codelets.convolutions.winograd_runs import reading_runs, writing_runs

        layout = ScratchLayout()
        position_b, tile_m = position_bytes(self.features, self.c.features), 4 * whole_vectors(self.c.features)
        is_large = positions(self.axes) * position_b > LARGE_KERNEL
        fields, shifts = self.fields(MOST_TILES if is_large else LEAST_TILES, layout)
        tiles, whole = fields["block_tiles"], whole_vectors(self.a.features) // lanes() * fields["vector_a"]
        position_m, parts = tiles * tile_m + PADDING, np.arange(len(self.parts)) * whole
        even = len(self.parts) == 1 or self.a.features == self.part_features
        flags = positions(self.axes) * position_b, _flags_of_tap(self.a.features, self.c.features)
        patterns = layout.after_words(8 * self.taps.block_count)
        parameters = TransformedProduct(
            **fields,
            parts=np.add.outer(shifts, parts).reshape(-1),
            part_count=len(shifts) * len(parts),
            is_even=int(even and len(shifts) == 1),
            transformed=self.transformed,
            unit_tiles=self.unit_tiles,
            position_b=position_b,
            position_m=position_m,
            tile_m=tile_m,
            rows_of_a=layout.after_words(8 * tiles),
            rows_of_m=layout.after_words(8 * tiles),
            k_of_a=layout.after_words(8 * self.features),
            products_at=layout.after_words(positions(self.axes) * position_m),
            zero_sums=self.taps.record(self.parts, self.c.size, self.axes, flags, self.a.element_type, patterns),
        )
        inputs, products = (transform_of(kind, self.axes) for kind in ("inputs", "products"))
        calls = self.calls(reading_runs(inputs, self.a.element_type), writing_runs(products, self.c.element_type))
        return Encoded.of(winograd_product, block(parameters), layout.space(), calls)


@frozen
class WinogradGradient(WinogradTiles):
    """Sums of transformed inputs times transformed gradients of outputs.

    Each share of `share_tiles` tiles has sums of its own, [share, position, input feature, output feature].
    """

    sums: Address
    share_tiles: int

    @property
    def shares(self) -> int:
        """The number of shares of the tiles."""
        return -(-self.tile_count // self.share_tiles)

    @property
    def unit_count(self) -> int:
        return self.shares * -(-len(self.parts) * self.part_features // GRADIENT_BLOCK)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of inputs, gradients and sums."""
        yield from (self.a.footprint(self.images, False), self.c.footprint(self.images, False))
        size = self.shares * positions(self.axes) * position_bytes(self.features, self.c.features)
        yield Footprint(self.sums, 0, size, True)

    def encode(self) -> Encoded:
        """The words of `Gradient`; scratch has tables, zeros, and transformed inputs and gradients."""
        from engine.codelets.convolutions.winograd_gradient import Gradient, winograd_gradient
        from engine.codelets.convolutions.winograd_runs import reading_runs

        layout = ScratchLayout()
        (fields, shifts), pitch = self.fields(LEAST_GRADIENT_TILES, layout), 4 * whole_vectors(self.c.features)
        tiles, position_sums = fields["block_tiles"], position_bytes(self.features, self.c.features)
        position_g, even = tiles * pitch + PADDING, self.a.features == self.part_features
        exact = len(self.parts) * self.a.features
        parameters = Gradient(
            **fields,
            group=exact if even else self.a.features,
            whole_group=exact if even else self.part_features,
            shifts=shifts,
            shift_count=len(shifts),
            shift_features=exact,
            sums=self.sums,
            share_tiles=self.share_tiles,
            share_bytes=positions(self.axes) * position_sums,
            position_sums=position_sums,
            feature_sums=pitch,
            position_g=position_g,
            features_of_a=layout.after_words(8 * exact),
            k=layout.after_words(8 * tiles),
            rows_of_sums=layout.after_words(8 * exact),
            gradients_at=layout.after_words(positions(self.axes) * position_g),
        )
        inputs, gradients = (transform_of(kind, self.axes) for kind in ("inputs", "gradients"))
        calls = self.calls(*(reading_runs(each, self.a.element_type) for each in (inputs, gradients)))
        return Encoded.of(winograd_gradient, block(parameters), layout.space(), calls)


@frozen
class WinogradSums(HostWork):
    """Adds `shares` partial sums, each [position, part, input feature, output feature], and transforms them to taps.

    `parts` are the numbers of the parts with taps, of `part_count`. `taps` [part, tap] are byte offsets in C; a tap
    that does not exist has the first tap's. Features are `feature_c` bytes apart.
    """

    sums: Address
    c: Address
    shares: int
    features: int
    outputs: int
    part_count: int
    parts: tuple[int, ...]
    taps: Offsets
    feature_c: int
    result_type: str
    axes: Axes

    @property
    def position(self) -> int:
        """Bytes between positions of the sums."""
        return position_bytes(self.part_count * self.features, self.outputs)

    @property
    def unit_count(self) -> int:
        return len(self.parts) * self.features

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last sum and result."""
        yield Footprint(self.sums, 0, self.shares * positions(self.axes) * self.position, False)
        last, found = (self.features - 1) * self.feature_c, self.taps.table
        end = int(found.max()) + max(0, last) + Shape(self.result_type).dtype.itemsize * self.outputs
        yield Footprint(self.c, int(found.min()) + min(0, last), end, True)

    def encode(self) -> Encoded:
        """The words of `Sums`; scratch has the sums of one input feature."""
        from engine.codelets.convolutions.linear_forms import transforming
        from engine.codelets.convolutions.winograd_gradient import Sums, winograd_sums

        pitch = 4 * whole_vectors(self.outputs)
        parameters = Sums(
            sums=self.sums,
            c=self.c,
            addends=np.arange(self.shares) * (positions(self.axes) * self.position),
            position_count=positions(self.axes),
            tap_count=taps_of(self.axes),
            count=self.shares,
            outputs=self.outputs,
            feature_sums=pitch,
            feature_c=self.feature_c,
            features=self.features,
            parts=np.array(self.parts) * (self.features * pitch),
            taps=self.taps.table,
            positions=np.arange(positions(self.axes)) * self.position,
            places=np.arange(positions(self.axes)) * pitch,
            added=RESERVED_SCRATCH,
        )
        calls = ((Sums.TRANSFORM, transforming(transform_of("sums", self.axes), self.result_type)),)
        return Encoded.of(winograd_sums, block(parameters), positions(self.axes) * pitch, calls)
