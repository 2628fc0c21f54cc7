"""Convolutions of 3 x 3 taps and stride 1 by Winograd's F(4 x 4, 3 x 3) or F(2 x 2, 3 x 3): bids, and compute sets.

Gradients by inputs, which are such convolutions, and by kernels are computed likewise. Taps in depth are summed like
features of neighbouring slices.
"""

from __future__ import annotations

from math import prod

import numpy as np

from engine.codelets.convolutions.cook_toom import (
    GRADIENT_BLOCK,
    OUTPUTS,
    TAPS,
    WIDE_OUTPUTS,
    WINDOW,
    position_bytes,
    positions,
    whole_vectors,
)
from engine.host.convolutions.part import Axis, ConvolutionPart, estimate_of
from engine.host.convolutions.winograd_work import (
    Depth,
    Images,
    WinogradGradient,
    WinogradKernel,
    WinogradProduct,
    WinogradSums,
)
from engine.ir.shape import Shape
from engine.machine_code.costs import most_winograd_outputs
from engine.machine_code.processor import multiplies_bf16_pairs
from engine.program.buffer import Address, Buffer
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import ComputeSet, Span, WorkEstimate
from engine.program.work.base import MOST_UNITS
from engine.program.work.offsets import Offsets

TYPES = ("f32", "f16", "bf16")
TRANSFORM = {OUTPUTS: 80, WIDE_OUTPUTS: 160}
"""Multiply-adds that take as long as a transform of a tile's feature, of input or output (timed on an EPYC)."""
PRODUCT = {OUTPUTS: 0, WIDE_OUTPUTS: 4}
"""Input features whose multiply-adds take as long as storing a product."""
KERNEL_TRANSFORM = {OUTPUTS: 300, WIDE_OUTPUTS: 600}
"""Multiply-adds that take as long as transforming the taps of an input and an output feature."""
SUM_OF_PAIRS = 24
"""Multiply-adds that a sum of products of pairs takes besides its transforms."""
WORTH = 0.85
"""Share of the multiply-adds below which transforming is worth it."""
GRADIENT_UNITS = 16
"""Units of a gradient: each part of the tiles has its own sums, to be added."""
PART_TILES = 128
"""Fewest tiles of a part."""


def bids(size: ConvolutionSize, element_type: str) -> dict[str, float]:
    """Estimates times by the outputs of a tile, as shares of the contraction's time.

    There are none where tiles cannot compute it.
    """
    return {f"F({tile} x {tile}, 3 x 3)": share for tile, share in _shares(size, element_type).items()}


def transformed(part: ConvolutionPart) -> list[ComputeSet] | None:
    """The compute sets of the fastest tiles; None where the contraction is faster, or the arrays are not suitable."""
    tile = _tile(part.size, part.element_type)
    if tile is None:
        return None
    return _gradient_sets(part, tile) if is_gradient(part.size) else _convolution_sets(part, tile)


def is_gradient(size: ConvolutionSize) -> bool:
    """Whether the outputs, not the taps, are a window of 3 x 3."""
    return size.taps[-2:] != (WINDOW, WINDOW) and size.field[-2:] == (WINDOW, WINDOW)


def _tile(size: ConvolutionSize, element_type: str) -> int | None:
    """Outputs along each side of the fastest tiles; None where the contraction is faster."""
    shares = _shares(size, element_type)
    best = min(shares, key=lambda each: shares[each], default=None)
    return best if best is not None and shares[best] < WORTH else None


def _shares(size: ConvolutionSize, element_type: str) -> dict[int, float]:
    """The bids by outputs along each side of a tile."""
    if size.groups != 1 or len(size.taps) > 3 or element_type not in TYPES:
        return {}
    if any(each != 1.0 for each in (*size.steps, *size.dilations)):
        return {}
    if size.taps[-2:] == (WINDOW, WINDOW):
        images, field, deep, features = size.batch, size.field, size.taps, size.inputs
    elif is_gradient(size):
        images, field, deep, features = size.inputs, size.taps, size.field, size.batch
    else:
        return {}
    depth, images = prod(deep[:-2]), images * prod(field[:-2])
    if (depth > 1 and features != whole_vectors(features)) or min(field[-2:]) < 2:
        return {}
    sizes = images, field[-2:], depth * features, size.outputs
    direct = _direct_cost(element_type, *sizes)
    if not direct:
        return {}
    return {each: _cost(each, *sizes) / direct for each in (OUTPUTS, WIDE_OUTPUTS) if each <= most_winograd_outputs()}


def _direct_cost(element_type: str, images: int, field: tuple[int, ...], inputs: int, outputs: int) -> int:
    """Multiply-adds that take as long as the contraction."""
    each = TAPS * inputs
    if element_type == "bf16" and multiplies_bf16_pairs():
        each = each // 2 + SUM_OF_PAIRS
    return images * field[0] * field[1] * each * whole_vectors(outputs)


def _cost(tile: int, images: int, field: tuple[int, ...], inputs: int, outputs: int) -> int:
    """Multiply-adds that take as long as a transformed convolution."""
    wide = whole_vectors(outputs)
    tiles = images * -(-field[0] // tile) * -(-field[1] // tile)
    transforms = tiles * TRANSFORM[tile] * (whole_vectors(inputs) + wide) + KERNEL_TRANSFORM[tile] * inputs * wide
    return tiles * positions(tile) * (inputs + PRODUCT[tile]) * wide + transforms


def _planes(part: ConvolutionPart) -> tuple[Axis, Axis, Axis]:
    """The axes of slices, rows and columns."""
    *deep, rows, columns = part.axes
    return (deep[0] if deep else Axis()), rows, columns


def _has_even_images(images: int, stride: int, slices: int, slice_stride: int) -> bool:
    """Whether the slices of all images are evenly spaced."""
    return slices == 1 or images == 1 or stride == slices * slice_stride


def _convolution_sets(part: ConvolutionPart, tile: int) -> list[ComputeSet] | None:
    """Makes the transform of the kernel and the products by its tiles, if the arrays' features are contiguous."""
    (deep, rows, columns), (batch, inputs, outputs) = _planes(part), (part.batch, part.inputs, part.outputs)
    if not deep.is_inside or min(rows.size, columns.size) < 1:
        return None
    if inputs.count > 1 and inputs.one != part.item:
        return None
    if not _has_even_images(batch.count, batch.other, deep.count, deep.stride_c):
        return None
    features = deep.taps * inputs.count
    # The taps in their order in memory, each with the features of all slices from the first slice of inputs on.
    window = np.add.outer(np.arange(WINDOW) * rows.stride_b, np.arange(WINDOW) * columns.stride_b).reshape(-1)
    order = np.argsort(window, kind="stable")
    of_features = np.add.outer(np.arange(deep.taps) * deep.stride_b, np.arange(inputs.count) * inputs.other)
    k_b = Offsets(np.add.outer(window[order], of_features).reshape(-1))
    of_positions = position_bytes(features, outputs.count) // 4
    buffer = Buffer(f"{part.name}.transformed", Shape("f32", (positions(tile), of_positions)))
    kernel = WinogradKernel(
        part.b,
        Address(buffer),
        k_b,
        tuple(np.argsort(order, kind="stable").tolist()),
        outputs.count,
        outputs.one if outputs.count > 1 else part.item,
        part.element_type,
        tile,
    )
    images = batch.count * deep.count
    image_c = deep.stride_c if deep.count > 1 else batch.other
    made = WinogradProduct(
        images,
        _images_of_a(part, features, batch.one, deep.count, deep.taps),
        Images(
            part.c,
            outputs.count,
            (image_c, rows.stride_c, columns.stride_c),
            (rows.count, columns.count),
            element_type=part.element_type,
        ),
        tile,
        Address(buffer),
        unit_rows=-(-images * -(-rows.count // tile) // MOST_UNITS),
    )
    transform = ComputeSet(
        buffer.name, kernel, kernel.unit_count, [Span(part.b.buffer)], [Span(buffer)], op_name=part.op_name
    )
    whole_tiles = made.c.size[0] % tile == 0
    partition = made.c.partition(images, tile * made.unit_rows) if whole_tiles else None
    reads, writes = [Span(part.a.buffer), Span(buffer)], [Span(part.c.buffer, partition)]
    return [transform, ComputeSet(part.name, made, made.unit_count, reads, writes, estimate_of(part), part.op_name)]


def _gradient_sets(part: ConvolutionPart, tile: int) -> list[ComputeSet] | None:
    """Makes the partial sums and the taps of a gradient by the kernel, if the arrays' features are contiguous."""
    (deep, rows, columns), (batch, inputs, outputs) = _planes(part), (part.batch, part.inputs, part.outputs)
    if not deep.is_inside or min(rows.size, columns.size) < 1:
        return None
    if batch.count == 1 or batch.one != part.item or (outputs.count > 1 and outputs.one != part.item):
        return None
    if not _has_even_images(inputs.count, inputs.other, deep.taps, deep.stride_b):
        return None
    if columns.stride_a < 0:
        return None
    images, field, features = inputs.count * deep.taps, (rows.taps, columns.taps), deep.count * batch.count
    tiles = images * -(-field[0] // tile) * -(-field[1] // tile)
    parts = max(1, min(GRADIENT_UNITS // -(-features // GRADIENT_BLOCK), tiles // PART_TILES))
    of_positions = position_bytes(features, outputs.count) // 4
    buffer = Buffer(f"{part.name}.sums", Shape("f32", (parts, positions(tile), of_positions)))
    image_c = deep.stride_b if deep.taps > 1 else inputs.other
    made = WinogradGradient(
        images,
        _images_of_a(part, features, inputs.one, deep.taps, deep.count),
        Images(
            part.b,
            outputs.count,
            (image_c, rows.stride_b, columns.stride_b),
            field,
            element_type=part.element_type,
        ),
        tile,
        Address(buffer),
        part_tiles=-(-tiles // parts),
    )
    window = np.add.outer(np.arange(WINDOW) * rows.stride_c, np.arange(WINDOW) * columns.stride_c).reshape(-1)
    added = WinogradSums(
        Address(buffer),
        part.c,
        made.parts,
        features,
        outputs.count,
        Offsets(window),
        batch.other,
        deep.count,
        deep.stride_c,
        part.element_type,
        tile,
    )
    reads = [Span(part.a.buffer), Span(part.b.buffer)]
    estimate = WorkEstimate({"add": buffer.shape.elements})
    return [
        ComputeSet(part.name, made, made.unit_count, reads, [Span(buffer)], estimate_of(part), part.op_name),
        ComputeSet(buffer.name, added, added.unit_count, [Span(buffer)], [Span(part.c.buffer)], estimate, part.op_name),
    ]


def _images_of_a(part: ConvolutionPart, features: int, image: int, slices: int, taps: int) -> Images:
    """The inputs, `image` bytes apart, with slices of outputs that read `taps` slices of inputs each."""
    deep, rows, columns = _planes(part)
    return Images(
        part.begin,
        features,
        (image, rows.stride_a, columns.stride_a),
        (rows.size, columns.size),
        (rows.low, columns.low),
        Depth(slices, deep.stride_a if slices * taps > 1 else 0, taps),
        part.element_type,
    )
