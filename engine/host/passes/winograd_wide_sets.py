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

from engine.codelets.convolutions.tile_sizes import TileAxis
from engine.host.passes.winograd_sets import even_strides
from engine.ir.shape import Shape
from engine.machine_code.costs import MOST_UNITS
from engine.program.buffer import Address, Buffer
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import ComputeSet, Partition, Span, WorkEstimate
from engine.program.work.contraction import Contraction, Grid
from engine.program.work.offsets import Offsets, table
from engine.program.work.tile_transform import KernelTransform, Pair, TileArray, TileTransform, part_of_images
from engine.program.work.winograd_tiles import Strides

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


def convolution_sets(
    product: ComputeSet, work: Contraction, size: ConvolutionSize, written: Buffer, tiling: Tiling
) -> tuple[ComputeSet, ...] | None:
    """Makes transforms of kernel and inputs, products, and the transform to outputs; None for uneven arrays."""
    field, taps, axes = flat(size.field), flat(size.taps), tiling.axes
    if work.size != (1, size.batch * prod(field), size.outputs, prod(taps) * size.inputs):
        return None
    strides_a, strides_c = (even_strides(each, (size.batch, *field)) for each in (work.row_a, work.row_c))
    window = None if strides_a is None else _window(work, taps, field, size.inputs, strides_a, tiling.steps)
    if strides_a is None or strides_c is None or window is None:
        return None
    begin, kernel, strides_a = window
    transform, kernels = _kernel_set(product, work, size, tiling, kernel)
    inputs, outputs, phases = size.inputs, size.outputs, tiling.phases(taps)
    tiles, input_tiles = tiling.tiles(field), tiling.input_tiles(field)
    count = _images_together(size, tiling, len(kernels.k))
    read = Transformed.of(f"{product.name}.inputs", axes, count, input_tiles, inputs, phases)
    made = Transformed.of(f"{product.name}.products", axes, count, tiles, outputs)
    begins = _moved(work.a, work.row_a.table[0] + begin)
    source = part_of_images(begins, strides_a, _padded(field, taps, tiling.steps), tiling.outputs, tiling.steps)
    target = part_of_images(
        _moved(replace(work.c, buffer=written), work.row_c.table[0]), strides_c, field, tiling.outputs
    )
    parts = (axes[0].parts, read.row), (axes[1].parts, read.column)
    sets = [transform]
    for first in range(0, size.batch, count):
        images = min(count, size.batch - first)
        skipped = first, size.batch - first - images
        of_images = product if count == size.batch else replace(product, name=f"{product.name}.from{first}")
        rows = table((images, read.image), (tiles[0], read.row), (tiles[1], read.column))
        multiplied = replace(
            work,
            a=Address(read.buffer),
            b=Address(kernels.buffer),
            c=Address(made.buffer),
            row_a=Offsets(rows),
            row_c=Offsets(np.arange(len(rows)) * made.column),
            k_a=Offsets(table(*parts, (prod(phases) * inputs, 4))),
            k_b=Offsets(kernels.k),
            batch_a=read.batches,
            batch_b=kernels.batches,
            batch_c=made.batches,
            stride_b=kernels.stride,
            grid=_grid(len(made.batches), len(rows), outputs, len(kernels.k)),
            partial_pitch=0,
        )
        some = replace(source, skipped=skipped), replace(target, skipped=skipped)
        sets += [
            _transform_set(of_images, "inputs", axes, some[0], read.array(axes), images, input_tiles, inputs, phases),
            _product_set(of_images, multiplied),
            _transform_set(of_images, "products", axes, made.array(axes), some[1], images, tiles, outputs),
        ]
    return tuple(sets)


def _images_together(size: ConvolutionSize, tiling: Tiling, k: int) -> int:
    """Images that are transformed and multiplied before the next ones are, so that they stay in the cache."""
    field, taps = flat(size.field), flat(size.taps)
    read = prod(tiling.input_tiles(field)) * prod(tiling.phases(taps)) * size.inputs
    image = 4 * prod(each.side for each in tiling.axes) * (read + prod(tiling.tiles(field)) * size.outputs)
    kernel = 4 * prod(each.side for each in tiling.axes) * k * size.outputs
    most = max(1, max(TOGETHER_BYTES, 2 * kernel) // image)
    return -(-size.batch // -(-size.batch // most))


def gradient_sets(
    product: ComputeSet, work: Contraction, size: ConvolutionSize, written: Buffer, tiling: Tiling
) -> tuple[ComputeSet, ...] | None:
    """Makes transforms of inputs and outputs' gradients, products summed over tiles, and the transform to taps."""
    field, taps, axes = flat(size.taps), flat(size.field), tiling.axes
    images, features = size.inputs, size.batch
    if work.size != (1, prod(taps) * features, size.outputs, prod(field) * images):
        return None
    strides_a, strides_g = (even_strides(each, (images, *field)) for each in (work.k_a, work.k_b))
    of_taps, strides_c = (even_strides(each, (*taps, features)) for each in (work.row_a, work.row_c))
    if strides_a is None or strides_g is None or of_taps is None or strides_c is None:
        return None
    elements = _of_elements(taps, of_taps[:2], field, strides_a[1:], tiling.steps)
    if work.stride_b != 4 or elements is None or of_taps[2] != (4 if features > 1 else 0):
        return None
    tiles, input_tiles, outputs, phases = (
        tiling.tiles(field),
        tiling.input_tiles(field),
        size.outputs,
        tiling.phases(taps),
    )
    read = Transformed.of(f"{product.name}.inputs", axes, images, input_tiles, features, phases)
    given = Transformed.of(f"{product.name}.gradients", axes, images, tiles, outputs)
    sums = Transformed.of(f"{product.name}.sums", axes, prod(tiling.parts), (prod(phases) * features, 1), outputs)
    begins = _moved(work.a, work.row_a.table[0] + work.k_a.table[0])
    padded = _padded(field, taps, tiling.steps)
    source = part_of_images(begins, (strides_a[0], *elements), padded, tiling.outputs, tiling.steps)
    gradients = part_of_images(_moved(work.b, work.k_b.table[0]), strides_g, field, tiling.outputs)
    first = _transform_set(product, "inputs", axes, source, read.array(axes), images, input_tiles, features, phases)
    second = _transform_set(product, "gradients", axes, gradients, given.array(axes), images, tiles, outputs)
    parts = (axes[0].parts, read.row), (axes[1].parts, read.column)
    along = table((images, read.image), (tiles[0], read.row), (tiles[1], read.column))
    rows = table(*parts, (prod(phases) * features, 4))
    multiplied = replace(
        work,
        a=Address(read.buffer),
        b=Address(given.buffer),
        c=Address(sums.buffer),
        row_a=Offsets(rows),
        row_c=Offsets(np.arange(len(rows)) * sums.column),
        k_a=Offsets(along),
        k_b=Offsets(np.arange(len(along)) * given.column),
        batch_a=read.batches,
        batch_b=given.batches,
        batch_c=sums.batches,
        grid=_grid(len(sums.batches), len(rows), outputs, len(along)),
        partial_pitch=0,
    )
    # Each input feature is an image of the kernel's parts.
    phase = features * sums.column
    part = prod(phases) * phase
    summed = replace(
        sums.array(axes), image=sums.column, tiles=(axes[1].parts * part, part), phases=(phases[1] * phase, phase)
    )
    target = part_of_images(
        _moved(replace(work.c, buffer=written), work.row_c.table[0]),
        (strides_c[2], strides_c[0], strides_c[1]),
        taps,
        tiling.taps,
        tiling.steps,
    )
    last = _transform_set(product, "sums", axes, summed, target, features, tiling.parts, outputs, phases)
    return first, second, _product_set(product, multiplied), last


@dataclass(frozen=True, slots=True)
class _Kernels:
    """A transformed kernel as the right operand of products."""

    buffer: Buffer
    k: np.ndarray
    stride: int
    batches: Offsets


def _kernel_set(
    product: ComputeSet, work: Contraction, size: ConvolutionSize, tiling: Tiling, kernel: tuple[int, Strides]
) -> tuple[ComputeSet, _Kernels]:
    """Makes the transform of a kernel, with the features that are contiguous, outputs or inputs, in the lanes."""
    begin, (row, column, feature) = kernel
    taps, axes, parts = flat(size.taps), tiling.axes, tiling.parts
    phases = tiling.phases(taps)
    count, inputs, outputs = prod(parts), size.inputs, size.outputs
    of_outputs = work.stride_b == 4
    images, lanes = (inputs, outputs) if of_outputs else (outputs, inputs)
    made = Transformed.of(f"{product.name}.transformed", axes, count * prod(phases), (images, 1), lanes)
    # Lanes of outputs: [part, phase, input, output]; lanes of inputs: [output, part, phase, input].
    phase = images * 4 * lanes if of_outputs else 4 * lanes
    part = prod(phases) * phase
    image = 4 * lanes if of_outputs else count * part
    target = replace(made.array(axes), image=image, tiles=(parts[1] * part, part), phases=(phases[1] * phase, phase))
    strides = (feature if of_outputs else work.stride_b, row, column)
    source = part_of_images(_moved(work.b, begin), strides, taps, tiling.taps, tiling.steps)
    transform = _transform_set(product, "taps", axes, source, target, images, parts, lanes, phases)
    k = table((count * prod(phases), phase), (inputs, image if of_outputs else 4))
    return transform, _Kernels(made.buffer, k, 4 if of_outputs else image, made.batches)


def _window(
    work: Contraction, taps: Pair, field: Pair, features: int, strides: Strides, steps: Pair
) -> tuple[int, tuple[int, Strides], Strides] | None:
    """Finds the window's start in A, its taps' start and strides in B (rows, columns, features), and strides in A.

    The last are strides of images and elements; `strides` are strides of positions. None if offsets are not regular.
    """
    of_a, of_b = (each.table.reshape(prod(taps), features) for each in (work.k_a, work.k_b))
    order = np.argsort(of_a[:, 0], kind="stable")
    if strides[1] * steps[1] < strides[2] * steps[0]:
        order = order.reshape(taps[::-1]).T.reshape(-1)
    of_taps = even_strides(Offsets(of_a[order].reshape(-1)), (*taps, features))
    kernel = even_strides(Offsets(of_b[order].reshape(-1)), (*taps, features))
    if of_taps is None or kernel is None or of_taps[2] != (4 if features > 1 else 0):
        return None
    elements = _of_elements(taps, of_taps[:2], field, strides[1:], steps)
    if elements is None or 4 not in (work.stride_b, kernel[2]):
        return None
    return int(of_a[order[0], 0]), (int(of_b[order[0], 0]), kernel), (strides[0], *elements)


def _of_elements(
    taps: Pair, of_taps: tuple[int, ...], field: Pair, strides: tuple[int, ...], steps: Pair
) -> Pair | None:
    """Returns the strides of the inputs' rows and columns.

    None unless positions are `steps` taps apart, and more than one along dimensions with several taps.
    """
    made = []
    for count, tap, extent, stride, step in zip(taps, of_taps, field, strides, steps, strict=True):
        if stride % step or (count > 1 and (tap * step != stride or extent == 1)):
            return None
        made.append(stride // step)
    return made[0], made[1]


def _padded(field: Pair, taps: Pair, steps: Pair) -> Pair:
    """The inputs that a convolution reads."""
    return (field[0] - 1) * steps[0] + taps[0], (field[1] - 1) * steps[1] + taps[1]


def _moved(address: Address, offset: int) -> Address:
    return replace(address, offset=address.offset + int(offset))


def _grid(positions: int, rows: int, columns: int, k: int) -> Grid:
    """Chooses an even number of units, at least LEAST_UNITS: positions, and blocks of rows where those are few."""
    blocks = -(-LEAST_UNITS // positions)
    blocks += positions * blocks % 2
    return Grid(min(rows, -(-rows // blocks // HEIGHT) * HEIGHT), columns, k)


def _product_set(product: ComputeSet, work: Contraction) -> ComputeSet:
    reads = [Span(work.a.buffer), Span(work.b.buffer)]
    estimate = replace(product.work_estimate, convolution=None)
    return replace(
        product, work=work, units=work.unit_count, reads=reads, writes=[Span(work.c.buffer)], work_estimate=estimate
    )


def _transform_set(
    product: ComputeSet,
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
    reads, name = [Span(source.address.buffer)], f"{product.name}.{transform}"
    return ComputeSet(name, work, work.unit_count, reads, [written], WorkEstimate(), product.op_name)


def _partition(work: TileTransform) -> Partition | None:
    """The elements that each unit writes, where its rows of an image are contiguous."""
    target, step = work.target, work.target.step[0]
    if work.phases != (1, 1):
        return None
    row, column = target.elements
    rows, columns = target.size
    dense = step > 0 and (target.image, row, column) == (rows * row, columns * column, 4 * work.features)
    whole = target.address.buffer.shape.elements == work.images * rows * columns * work.features
    if not dense or rows % step or not whole:
        return None
    return Partition(work.features * columns, work.images * rows, step * work.unit_rows)
