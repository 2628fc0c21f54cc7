"""The compute sets of Winograd's convolutions with wide kernels: transforms of tiles around batched products.

A kernel with more taps than a tile is cut into parts, each of which reads the tiles that are so many further on: inputs
are transformed once, and products sum over parts and features. Transformed arrays are [position, image, tile, feature].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from engine.codelets.tile_sizes import Axis, axis_of
from engine.ir.shape import Shape
from engine.machine_code.costs import MOST_UNITS
from engine.program.buffer import Address, Buffer
from engine.program.convolution_size import ConvolutionSize
from engine.program.host_passes.winograd_sets import even_strides
from engine.program.program import ComputeSet, Partition, Span, WorkEstimate
from engine.program.work.contraction import Contraction, Grid
from engine.program.work.offsets import Offsets, table
from engine.program.work.tile_transform import KernelTransform, Pair, TileArray, TileTransform, part_of_images
from engine.program.work.winograd_tiles import Strides

PADDING = 64
"""Bytes between positions, so that these do not share cache sets."""
LEAST_UNITS = 32
"""Units of the products. Chosen by hand: units share panels."""
HEIGHT = 12
"""Rows of a unit are multiples: whole kernels. Neighbouring units of a worker are multiplied as one."""

Axes = tuple[Axis, Axis]


def flat(values: tuple[int, ...]) -> Pair:
    """Sizes of one or two spatial dimensions, by rows and columns."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def axes_of(taps: Pair) -> Axes | None:
    """The tiles for a kernel; None for those that have other transforms, or too few taps."""
    rows, columns = (axis_of(each) for each in taps)
    small = taps in ((1, 1), (3, 3))
    return None if rows is None or columns is None or small else (rows, columns)


@dataclass(frozen=True, slots=True)
class Transformed:
    """A transformed array: its buffer, and bytes between positions, images, rows and columns of tiles."""

    buffer: Buffer
    position: int
    image: int
    row: int
    column: int
    width: int

    @classmethod
    def of(cls, name: str, axes: Axes, images: int, tiles: Pair, features: int) -> Transformed:
        """A new one."""
        positions, column = axes[0].side * axes[1].side, 4 * features
        position = images * tiles[0] * tiles[1] * column + PADDING
        buffer = Buffer(name, Shape("f32", (positions, position // 4)))
        return cls(buffer, position, tiles[0] * tiles[1] * column, tiles[1] * column, column, axes[1].side)

    def array(self, axes: Axes) -> TileArray:
        """Its tiles, whose elements are positions."""
        return TileArray(
            Address(self.buffer),
            self.image,
            (self.row, self.column),
            (self.width * self.position, self.position),
            (axes[0].side, axes[1].side),
        )

    @property
    def batches(self) -> Offsets:
        """The offsets of positions."""
        return Offsets(np.arange(self.buffer.shape.dimensions[0]) * self.position)


def convolution_sets(
    product: ComputeSet, work: Contraction, size: ConvolutionSize, written: Buffer
) -> tuple[ComputeSet, ...] | None:
    """Transforms of the kernel and of inputs, products, and the transform to outputs; None for uneven arrays."""
    field, taps = flat(size.field), flat(size.taps)
    axes = axes_of(taps)
    if axes is None or work.size != (1, size.batch * prod(field), size.outputs, prod(taps) * size.inputs):
        return None
    strides_a, strides_c = (even_strides(each, (size.batch, *field)) for each in (work.row_a, work.row_c))
    window = None if strides_a is None else _window(work, taps, field, size.inputs, strides_a)
    if strides_a is None or strides_c is None or window is None:
        return None
    begin, kernel = window
    transform, kernels = _kernel_set(product, work, size, axes, kernel)
    tiles, (inputs, outputs) = _tiles(axes, field), (size.inputs, size.outputs)
    read = Transformed.of(f"{product.name}.inputs", axes, size.batch, _input_tiles(axes, field), inputs)
    made = Transformed.of(f"{product.name}.products", axes, size.batch, tiles, outputs)
    step = axes[0].outputs, axes[1].outputs
    source = part_of_images(_moved(work.a, work.row_a.table[0] + begin), strides_a, _padded(field, taps), step)
    inputs_set = _transform_set(
        product, "inputs", axes, source, read.array(axes), size.batch, _input_tiles(axes, field), inputs
    )
    parts = (axes[0].parts, read.row), (axes[1].parts, read.column)
    rows = table((size.batch, read.image), (tiles[0], read.row), (tiles[1], read.column))
    multiplied = replace(
        work,
        a=Address(read.buffer),
        b=Address(kernels.buffer),
        c=Address(made.buffer),
        row_a=Offsets(rows),
        row_c=Offsets(np.arange(len(rows)) * made.column),
        k_a=Offsets(table(*parts, (inputs, 4))),
        k_b=Offsets(kernels.k),
        batch_a=read.batches,
        batch_b=kernels.batches,
        batch_c=made.batches,
        stride_b=kernels.stride,
        grid=_grid(len(made.batches), len(rows), outputs, prod(each.parts for each in axes) * inputs),
        partial_pitch=0,
    )
    products = _product_set(product, multiplied)
    target = part_of_images(_moved(replace(work.c, buffer=written), work.row_c.table[0]), strides_c, field, step)
    results = _transform_set(product, "products", axes, made.array(axes), target, size.batch, tiles, outputs)
    return transform, inputs_set, products, results


def gradient_sets(
    product: ComputeSet, work: Contraction, size: ConvolutionSize, written: Buffer
) -> tuple[ComputeSet, ...] | None:
    """Transforms of inputs and of outputs' gradients, products summed over tiles, and the transform of sums to taps."""
    field, taps = flat(size.taps), flat(size.field)
    axes, images, features = axes_of(taps), size.inputs, size.batch
    if axes is None or work.size != (1, prod(taps) * features, size.outputs, prod(field) * images):
        return None
    strides_a, strides_g = (even_strides(each, (images, *field)) for each in (work.k_a, work.k_b))
    of_taps, strides_c = (even_strides(each, (*taps, features)) for each in (work.row_a, work.row_c))
    if strides_a is None or strides_g is None or of_taps is None or strides_c is None:
        return None
    if (
        work.stride_b != 4
        or not _same_steps(taps, of_taps[:2], field, strides_a[1:])
        or of_taps[2] != (4 if features > 1 else 0)
    ):
        return None
    tiles, input_tiles, outputs = _tiles(axes, field), _input_tiles(axes, field), size.outputs
    read = Transformed.of(f"{product.name}.inputs", axes, images, input_tiles, features)
    given = Transformed.of(f"{product.name}.gradients", axes, images, tiles, outputs)
    sums = Transformed.of(f"{product.name}.sums", axes, axes[0].parts * axes[1].parts, (features, 1), outputs)
    step = axes[0].outputs, axes[1].outputs
    source = part_of_images(
        _moved(work.a, work.row_a.table[0] + work.k_a.table[0]), strides_a, _padded(field, taps), step
    )
    gradients = part_of_images(_moved(work.b, work.k_b.table[0]), strides_g, field, step)
    first = _transform_set(product, "inputs", axes, source, read.array(axes), images, input_tiles, features)
    second = _transform_set(product, "gradients", axes, gradients, given.array(axes), images, tiles, outputs)
    parts = (axes[0].parts, read.row), (axes[1].parts, read.column)
    along = table((images, read.image), (tiles[0], read.row), (tiles[1], read.column))
    rows = table(*parts, (features, 4))
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
    summed = replace(
        sums.array(axes), image=sums.column, tiles=(axes[1].parts * features * sums.column, features * sums.column)
    )
    strides = strides_c[2], strides_c[0], strides_c[1]
    target = part_of_images(
        _moved(replace(work.c, buffer=written), work.row_c.table[0]), strides, taps, (axes[0].taps, axes[1].taps)
    )
    last = _transform_set(product, "sums", axes, summed, target, features, (axes[0].parts, axes[1].parts), outputs)
    return first, second, _product_set(product, multiplied), last


@dataclass(frozen=True, slots=True)
class _Kernels:
    """A transformed kernel as the right operand of products."""

    buffer: Buffer
    k: np.ndarray
    stride: int
    batches: Offsets


def _kernel_set(
    product: ComputeSet, work: Contraction, size: ConvolutionSize, axes: Axes, kernel: tuple[int, Strides]
) -> tuple[ComputeSet, _Kernels]:
    """The transform of a kernel, whose lanes are those features that are contiguous: outputs, or inputs."""
    begin, (row, column, feature) = kernel
    parts = axes[0].parts, axes[1].parts
    count, inputs, outputs = prod(parts), size.inputs, size.outputs
    of_outputs = work.stride_b == 4
    images, lanes = (inputs, outputs) if of_outputs else (outputs, inputs)
    made = Transformed.of(f"{product.name}.transformed", axes, count, (images, 1), lanes)
    # Lanes of outputs: [part, input, output]; lanes of inputs: [output, part, input].
    between = (4 * lanes, images * 4 * lanes) if of_outputs else (count * 4 * lanes, 4 * lanes)
    target = replace(made.array(axes), image=between[0], tiles=(parts[1] * between[1], between[1]))
    source = part_of_images(
        _moved(work.b, begin),
        (feature if of_outputs else work.stride_b, row, column),
        flat(size.taps),
        (axes[0].taps, axes[1].taps),
    )
    transform = _transform_set(product, "taps", axes, source, target, images, parts, lanes)
    k = table((count, between[1]), (inputs, between[0] if of_outputs else 4))
    return transform, _Kernels(made.buffer, k, 4 if of_outputs else between[0], made.batches)


def _window(
    work: Contraction, taps: Pair, field: Pair, features: int, strides: Strides
) -> tuple[int, tuple[int, Strides]] | None:
    """Where the window begins in A; where its taps begin in B, and the strides of rows, columns and features there."""
    of_a, of_b = (each.table.reshape(prod(taps), features) for each in (work.k_a, work.k_b))
    order = np.argsort(of_a[:, 0], kind="stable")
    if strides[1] < strides[2]:
        order = order.reshape(taps[::-1]).T.reshape(-1)
    of_taps = even_strides(Offsets(of_a[order].reshape(-1)), (*taps, features))
    kernel = even_strides(Offsets(of_b[order].reshape(-1)), (*taps, features))
    if of_taps is None or kernel is None or of_taps[2] != (4 if features > 1 else 0):
        return None
    if not _same_steps(taps, of_taps[:2], field, strides[1:]) or 4 not in (work.stride_b, kernel[2]):
        return None
    return int(of_a[order[0], 0]), (int(of_b[order[0], 0]), kernel)


def _same_steps(taps: Pair, of_taps: tuple[int, ...], field: Pair, strides: tuple[int, ...]) -> bool:
    """Whether taps are as far apart as positions, which are more than one along dimensions with several taps."""
    along = zip(taps, of_taps, field, strides, strict=True)
    return all(count == 1 or (step == stride and extent > 1) for count, step, extent, stride in along)


def _tiles(axes: Axes, field: Pair) -> Pair:
    return axes[0].tiles(field[0]), axes[1].tiles(field[1])


def _input_tiles(axes: Axes, field: Pair) -> Pair:
    return axes[0].input_tiles(field[0]), axes[1].input_tiles(field[1])


def _padded(field: Pair, taps: Pair) -> Pair:
    return field[0] + taps[0] - 1, field[1] + taps[1] - 1


def _moved(address: Address, offset: int) -> Address:
    return replace(address, offset=address.offset + int(offset))


def _grid(positions: int, rows: int, columns: int, k: int) -> Grid:
    """An even number of units, or many: positions, and blocks of their rows where these are few or odd."""
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
) -> ComputeSet:
    unit_rows = -(-images * tiles[0] // MOST_UNITS)
    kind = KernelTransform if transform == "taps" else TileTransform
    work = kind(transform, axes, source, target, images, tiles, features, unit_rows)
    written = Span(target.address.buffer, _partition(work))
    reads, name = [Span(source.address.buffer)], f"{product.name}.{transform}"
    return ComputeSet(name, work, work.unit_count, reads, [written], WorkEstimate(), product.op_name)


def _partition(work: TileTransform) -> Partition | None:
    """The elements that each unit writes, where its rows of an image are contiguous."""
    target, step = work.target, work.target.step[0]
    row, column = target.elements
    rows, columns = target.size
    dense = step > 0 and (target.image, row, column) == (rows * row, columns * column, 4 * work.features)
    whole = target.address.buffer.shape.elements == work.images * rows * columns * work.features
    if not dense or rows % step or not whole:
        return None
    return Partition(work.features * columns, work.images * rows, step * work.unit_rows)
