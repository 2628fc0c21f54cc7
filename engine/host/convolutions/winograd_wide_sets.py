"""The compute sets of Winograd's convolutions with wide kernels: transforms of tiles around batched products.

A kernel with more taps than a tile is cut into parts, and each part reads tiles that are further on: inputs are
transformed once, and products sum over parts and features. A convolution of stride 2 is one of stride 1 over its
phases: every second input, from the first or from the second on, with every second tap. Products sum over phases, too.
Transformed arrays are [position, image, tile, phase, feature].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from engine.codelets.convolutions.cook_toom import TileAxis
from engine.codelets.convolutions.tile_transform import KernelTransform, TileArray, TileTransform, part_of_images
from engine.host.convolutions.part import ConvolutionPart, Pair, estimate_of
from engine.host.convolutions.winograd_work import Images
from engine.ir.shape import Shape
from engine.program.buffer import Address, Buffer
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import ComputeSet, Partition, Span, WorkEstimate
from engine.program.work.base import MOST_UNITS
from engine.program.work.contraction import Contraction, Grid
from engine.program.work.offsets import Offsets, table

ITEM = 4
"""Bytes of an element."""
PADDING = 64
"""Bytes between positions, without which they would share cache sets."""
LEAST_UNITS = 32
"""Least units of the products."""
TOGETHER_BYTES = 1 << 22
"""Most bytes of transformed arrays of images that are multiplied together: larger ones leave the cache."""
HEIGHT = 12
"""Rows of a unit are multiples of this, for whole micro-kernels; a worker multiplies neighbouring units as one."""

Axes = tuple[TileAxis, TileAxis]


def flat(values: tuple[int, ...]) -> Pair:
    """Sizes of one or two spatial dimensions, by rows and columns."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles along rows and columns, and the input positions between two outputs: the phases."""

    axes: Axes
    steps: Pair

    def phases(self, taps: Pair) -> Pair:
        """The phases with at least one tap."""
        return min(self.steps[0], taps[0]), min(self.steps[1], taps[1])

    def tiles(self, field: Pair) -> Pair:
        """The tiles of outputs."""
        return self.axes[0].tiles(field[0]), self.axes[1].tiles(field[1])

    def input_tiles(self, field: Pair) -> Pair:
        """The tiles of inputs that the tiles of outputs read, in each phase."""
        return self.axes[0].input_tiles(field[0]), self.axes[1].input_tiles(field[1])

    @property
    def parts(self) -> Pair:
        """Parts of the kernel."""
        return self.axes[0].parts, self.axes[1].parts

    @property
    def outputs(self) -> Pair:
        """Outputs of a tile."""
        return self.axes[0].outputs, self.axes[1].outputs

    @property
    def taps(self) -> Pair:
        """Taps of a part of a phase."""
        return self.axes[0].taps, self.axes[1].taps


@dataclass(frozen=True, slots=True)
class Transformed:
    """A transformed array: its buffer, and bytes between positions, images, rows and columns of tiles, and phases."""

    buffer: Buffer
    position: int
    image: int
    row: int
    column: int
    phases: Pair
    width: int

    @classmethod
    def of(cls, name: str, axes: Axes, images: int, tiles: Pair, features: int, phases: Pair = (1, 1)) -> Transformed:
        """Makes a new transformed array."""
        positions, column = axes[0].side * axes[1].side, prod(phases) * 4 * features
        between = phases[1] * 4 * features, 4 * features
        position = images * tiles[0] * tiles[1] * column + PADDING
        buffer = Buffer(name, Shape("f32", (positions, position // 4)))
        return cls(buffer, position, prod(tiles) * column, tiles[1] * column, column, between, axes[1].side)

    def array(self, axes: Axes) -> TileArray:
        """The array's tiles, whose elements are positions."""
        return TileArray(
            Address(self.buffer),
            self.image,
            (self.row, self.column),
            (self.width * self.position, self.position),
            (axes[0].side, axes[1].side),
            phases=self.phases,
        )

    @property
    def batches(self) -> Offsets:
        """The offsets of positions."""
        return Offsets(np.arange(self.buffer.shape.dimensions[0]) * self.position)


def convolution_sets(part: ConvolutionPart, tiling: Tiling) -> list[ComputeSet] | None:
    """Makes transforms of kernel and inputs, products, and the transform to outputs; None for unsuitable arrays."""
    size, axes, (inputs, outputs) = part.size, tiling.axes, (part.inputs, part.outputs)
    if not _is_suitable(part) or not _has_whole_features(inputs.count, inputs.one):
        return None
    if not _has_whole_features(outputs.count, outputs.one) and (inputs.count == 1 or inputs.other != ITEM):
        return None
    transform, kernels = _kernel_set(part, tiling)
    phases, (tiles, input_tiles) = tiling.phases(_taps(part)), _tiles(tiling, _field(part))
    count = _images_together(size, tiling, len(kernels.k))
    read = Transformed.of(f"{part.name}.inputs", axes, count, input_tiles, inputs.count, phases)
    made = Transformed.of(f"{part.name}.products", axes, count, tiles, outputs.count)
    source = _images_of_a(part, part.batch.one, tiling)
    target = part_of_images(part.c, (part.batch.other, *_strides_c(part)), _field(part), tiling.outputs)
    parts = (axes[0].parts, read.row), (axes[1].parts, read.column)
    sets = [transform]
    for first in range(0, size.batch, count):
        images = min(count, size.batch - first)
        skipped = first, size.batch - first - images
        of_images = part if count == size.batch else replace(part, name=f"{part.name}.from{first}")
        rows = table((images, read.image), (tiles[0], read.row), (tiles[1], read.column))
        multiplied = _products(
            (read, made, kernels),
            rows,
            table(*parts, (prod(phases) * inputs.count, ITEM)),
            outputs.count,
        )
        some = replace(source, skipped=skipped), replace(target, skipped=skipped)
        sets += [
            _transform_set(
                of_images, "inputs", axes, some[0], read.array(axes), images, input_tiles, inputs.count, phases
            ),
            _product_set(of_images, multiplied),
            _transform_set(of_images, "products", axes, made.array(axes), some[1], images, tiles, outputs.count),
        ]
    return sets


def _images_together(size: ConvolutionSize, tiling: Tiling, k: int) -> int:
    """Images that are transformed and multiplied before the next ones are, so that they stay in the cache."""
    field, taps = flat(size.field), flat(size.taps)
    read = prod(tiling.input_tiles(field)) * prod(tiling.phases(taps)) * size.inputs
    image = 4 * prod(each.side for each in tiling.axes) * (read + prod(tiling.tiles(field)) * size.outputs)
    kernel = 4 * prod(each.side for each in tiling.axes) * k * size.outputs
    most = max(1, max(TOGETHER_BYTES, 2 * kernel) // image)
    return -(-size.batch // -(-size.batch // most))


def gradient_sets(part: ConvolutionPart, tiling: Tiling) -> list[ComputeSet] | None:
    """Makes transforms of inputs and outputs' gradients, products summed over tiles, and the transform to taps."""
    axes, taps, field, (batch, inputs, outputs) = (
        tiling.axes,
        _field(part),
        _taps(part),
        (part.batch, part.inputs, part.outputs),
    )
    if not _is_suitable(part, backward=True) or not _has_whole_features(batch.count, batch.one):
        return None
    if not _has_whole_features(outputs.count, outputs.one):
        return None
    images, features, phases, (tiles, input_tiles) = (
        inputs.count,
        batch.count,
        tiling.phases(taps),
        _tiles(tiling, field),
    )
    read = Transformed.of(f"{part.name}.inputs", axes, images, input_tiles, features, phases)
    given = Transformed.of(f"{part.name}.gradients", axes, images, tiles, outputs.count)
    sums = Transformed.of(f"{part.name}.sums", axes, prod(tiling.parts), (prod(phases) * features, 1), outputs.count)
    source = _images_of_a(part, inputs.one, tiling)
    gradients = part_of_images(part.b, (inputs.other, *_strides_b(part)), field, tiling.outputs)
    first = _transform_set(part, "inputs", axes, source, read.array(axes), images, input_tiles, features, phases)
    second = _transform_set(part, "gradients", axes, gradients, given.array(axes), images, tiles, outputs.count)
    parts = (axes[0].parts, read.row), (axes[1].parts, read.column)
    along = table((images, read.image), (tiles[0], read.row), (tiles[1], read.column))
    right = _Kernels(given.buffer, np.arange(len(along)) * given.column, ITEM, given.batches)
    multiplied = _products((read, sums, right), table(*parts, (prod(phases) * features, ITEM)), along, outputs.count)
    # Each input feature is an image of the kernel's parts.
    phase = features * sums.column
    of_part = prod(phases) * phase
    summed = replace(
        sums.array(axes), image=sums.column, tiles=(axes[1].parts * of_part, of_part), phases=(phases[1] * phase, phase)
    )
    target = part_of_images(part.c, (batch.other, *_strides_c(part)), taps, tiling.taps, tiling.steps)
    last = _transform_set(part, "sums", axes, summed, target, features, tiling.parts, outputs.count, phases)
    return [first, second, _product_set(part, multiplied), last]


@dataclass(frozen=True, slots=True)
class _Kernels:
    """A transformed kernel as the right operand of products."""

    buffer: Buffer
    k: np.ndarray
    stride: int
    batches: Offsets


def _kernel_set(part: ConvolutionPart, tiling: Tiling) -> tuple[ComputeSet, _Kernels]:
    """Makes the transform of a kernel, with the features that are contiguous, outputs or inputs, in the lanes."""
    taps, axes, parts = _taps(part), tiling.axes, tiling.parts
    phases = tiling.phases(taps)
    count, inputs, outputs = prod(parts), part.inputs, part.outputs
    of_outputs = _has_whole_features(outputs.count, outputs.one)
    images, lanes = (inputs.count, outputs.count) if of_outputs else (outputs.count, inputs.count)
    made = Transformed.of(f"{part.name}.transformed", axes, count * prod(phases), (images, 1), lanes)
    # Lanes of outputs: [part, phase, input, output]; lanes of inputs: [output, part, phase, input].
    phase = images * ITEM * lanes if of_outputs else ITEM * lanes
    of_part = prod(phases) * phase
    image = ITEM * lanes if of_outputs else count * of_part
    tiles = parts[1] * of_part, of_part
    target = replace(made.array(axes), image=image, tiles=tiles, phases=(phases[1] * phase, phase))
    strides = (inputs.other if of_outputs else outputs.one, *_strides_b(part))
    source = part_of_images(part.b, strides, taps, tiling.taps, tiling.steps)
    transform = _transform_set(part, "taps", axes, source, target, images, parts, lanes, phases)
    k = table((count * prod(phases), phase), (inputs.count, image if of_outputs else ITEM))
    return transform, _Kernels(made.buffer, k, ITEM if of_outputs else image, made.batches)


def _is_suitable(part: ConvolutionPart, backward: bool = False) -> bool:
    """Whether there are several positions along dimensions with several taps, and inputs that exist."""
    counts = [(axis.taps, axis.count) if backward else (axis.count, axis.taps) for axis in part.axes]
    return all(positions > 1 or taps == 1 for positions, taps in counts) and min(a.size for a in part.axes) > 0


def _has_whole_features(count: int, stride: int) -> bool:
    """Whether features are contiguous."""
    return count == 1 or stride == ITEM


def _field(part: ConvolutionPart) -> Pair:
    return part.axes[0].count, part.axes[1].count


def _taps(part: ConvolutionPart) -> Pair:
    return part.axes[0].taps, part.axes[1].taps


def _strides_b(part: ConvolutionPart) -> Pair:
    return part.axes[0].stride_b, part.axes[1].stride_b


def _strides_c(part: ConvolutionPart) -> Pair:
    return part.axes[0].stride_c, part.axes[1].stride_c


def _tiles(tiling: Tiling, field: Pair) -> tuple[Pair, Pair]:
    """The tiles of outputs and of inputs."""
    return tiling.tiles(field), tiling.input_tiles(field)


def _images_of_a(part: ConvolutionPart, image: int, tiling: Tiling) -> TileArray:
    """The tiles of the inputs, which are zero where they do not exist; images are `image` bytes apart."""
    rows, columns = part.axes
    strides, size = (image, rows.stride_a, columns.stride_a), (rows.size, columns.size)
    found = part_of_images(part.begin, strides, size, tiling.outputs, tiling.steps)
    return replace(found, first=(-rows.low, -columns.low))


def _products(
    arrays: tuple[Transformed, Transformed, _Kernels], rows: np.ndarray, k_a: np.ndarray, columns: int
) -> Contraction:
    """The products of transformed inputs and kernels, one batch for each position of a tile."""
    read, made, right = arrays
    return Contraction(
        Address(read.buffer),
        Address(right.buffer),
        Address(made.buffer),
        Offsets(rows),
        Offsets(np.arange(len(rows)) * made.column),
        Offsets(k_a),
        Offsets(right.k),
        read.batches,
        right.batches,
        made.batches,
        columns,
        right.stride,
        _grid(len(made.batches), len(rows), columns, len(right.k)),
        "f32",
        "f32",
    )


def _grid(positions: int, rows: int, columns: int, k: int) -> Grid:
    """Chooses an even number of units, at least LEAST_UNITS: positions, and blocks of rows where those are few."""
    blocks = -(-LEAST_UNITS // positions)
    blocks += positions * blocks % 2
    return Grid(min(rows, -(-rows // blocks // HEIGHT) * HEIGHT), columns, k)


def _product_set(part: ConvolutionPart, work: Contraction) -> ComputeSet:
    reads, writes = [Span(work.a.buffer), Span(work.b.buffer)], [Span(work.c.buffer)]
    return ComputeSet(part.name, work, work.unit_count, reads, writes, estimate_of(part), part.op_name)


def _transform_set(
    part: ConvolutionPart,
    transform: str,
    axes: Axes,
    source: TileArray,
    target: TileArray,
    images: int,
    tiles: Pair,
    features: int,
    phases: Pair = (1, 1),
) -> ComputeSet:
    unit_rows = -(-images * tiles[0] // MOST_UNITS)
    kind = KernelTransform if transform == "taps" else TileTransform
    work = kind(transform, axes, source, target, images, tiles, features, unit_rows, phases)
    written = Span(target.address.buffer, _partition(work))
    reads, name = [Span(source.address.buffer)], f"{part.name}.{transform}"
    return ComputeSet(name, work, work.unit_count, reads, [written], WorkEstimate(), part.op_name)


def _partition(work: TileTransform) -> Partition | None:
    """The elements that each unit writes, where its rows of an image are contiguous."""
    target, step = work.target, work.target.step[0]
    if work.phases != (1, 1) or step <= 0 or target.size[0] % step:
        return None
    images = Images(target.address, work.features, (target.image, *target.elements), target.size)
    return images.partition(work.images, step * work.unit_rows)
