"""The compute sets of Winograd's convolutions and of their gradients by the kernel, in place of contractions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.codelets.winograd_sizes import GRADIENT_BLOCK, OUTPUTS, POSITIONS, TAPS, WINDOW, position_bytes
from engine.ir.shape import Shape
from engine.machine_code.costs import MOST_UNITS
from engine.program.buffer import Address, Buffer
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import ComputeSet, Partition, Span, WorkEstimate
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import Offsets
from engine.program.work.winograd import WinogradKernel, WinogradProduct
from engine.program.work.winograd_gradient import WinogradGradient, WinogradSums
from engine.program.work.winograd_tiles import Strides

GRADIENT_UNITS = 16
"""Units of a gradient. Chosen by hand: each part of the tiles has sums of its own, to be added."""
PART_TILES = 128
"""Fewest tiles of a part. Chosen by hand."""

Sets = tuple[ComputeSet, ComputeSet]


def convolution_sets(product: ComputeSet, work: Contraction, size: ConvolutionSize, written: Buffer) -> Sets | None:
    """The transform of the kernel and the products, if all three arrays are evenly spaced."""
    field = size.field[0], size.field[1]
    if work.size != (1, size.batch * field[0] * field[1], size.outputs, TAPS * size.inputs):
        return None
    strides_a, strides_c = (_strides(each, (size.batch, *field)) for each in (work.row_a, work.row_c))
    taps = None if strides_a is None else _taps(work.k_a.table, size.inputs, strides_a)
    if strides_a is None or strides_c is None or taps is None:
        return None
    columns = position_bytes(size.inputs, size.outputs) // 4
    buffer = Buffer(f"{product.name}.transformed", Shape("f32", (POSITIONS, columns)))
    kernel = WinogradKernel(work.b, Address(buffer), work.k_b, taps, work.columns, work.stride_b)
    tile_rows = size.batch * -(-field[0] // OUTPUTS)
    made = WinogradProduct(
        _moved(work.a, work.row_a.table[0] + work.k_a.table.min()),
        Address(buffer),
        replace(_moved(work.c, work.row_c.table[0]), buffer=written),
        size.batch,
        _padded(field),
        (0, 0),
        field,
        size.inputs,
        size.outputs,
        strides_a,
        strides_c,
        -(-tile_rows // MOST_UNITS),
    )
    transform = ComputeSet(
        buffer.name, kernel, kernel.unit_count, [Span(work.b.buffer)], [Span(buffer)], op_name=product.op_name
    )
    reads, writes = [Span(work.a.buffer), Span(buffer)], [Span(written, _partition(made))]
    return transform, replace(product, work=made, units=made.unit_count, reads=reads, writes=writes)


def gradient_sets(product: ComputeSet, work: Contraction, size: ConvolutionSize, written: Buffer) -> Sets | None:
    """The partial sums and the taps of a gradient by the kernel, if all three arrays are evenly spaced."""
    images, features, field = size.inputs, size.batch, (size.taps[0], size.taps[1])
    # Few features are grouped: with them the columns of C have the window's, from the last to the first, and those of B
    # slide over rows of gradients with zeros before and after.
    group = work.columns // size.outputs
    if group not in (1, WINDOW) or work.stride_b != 4:
        return None
    slid = images, field[0], field[1] + group - 1
    if work.size != (1, TAPS // group * features, group * size.outputs, slid[0] * slid[1] * slid[2]):
        return None
    strides_a, strides_g = (_strides(each, slid) for each in (work.k_a, work.k_b))
    window = WINDOW // group, WINDOW, features
    of_taps, taps = (_strides(each, window) for each in (work.row_a, work.row_c))
    if of_taps is None or taps is None or strides_a is None or strides_g is None:
        return None
    column = 4 * size.outputs
    if group == 1:
        begin, rows, columns, expected = 0, taps[0], np.arange(WINDOW) * taps[1], (*strides_a[1:], 4)
    elif strides_g[2] == column:
        begin, rows, columns = (WINDOW - 1) * column, taps[1], np.arange(WINDOW)[::-1] * column
        expected = (0, strides_a[1], 4)
    else:
        return None
    if of_taps != expected or strides_a[2] < 0:
        return None
    tiles = images * -(-field[0] // OUTPUTS) * -(-field[1] // OUTPUTS)
    parts = max(1, min(GRADIENT_UNITS // -(-features // GRADIENT_BLOCK), tiles // PART_TILES))
    buffer = Buffer(
        f"{product.name}.sums", Shape("f32", (parts, POSITIONS, position_bytes(features, size.outputs) // 4))
    )
    made = WinogradGradient(
        _moved(work.a, work.row_a.table[0] + work.k_a.table[0]),
        _moved(work.b, work.k_b.table[0] + begin),
        Address(buffer),
        images,
        _padded(field),
        (0, 0),
        field,
        features,
        size.outputs,
        strides_a,
        strides_g,
        -(-tiles // parts),
    )
    added = WinogradSums(
        Address(buffer),
        replace(_moved(work.c, work.row_c.table[0]), buffer=written),
        made.parts,
        features,
        size.outputs,
        Offsets(np.add.outer(np.arange(WINDOW) * rows, columns).reshape(-1)),
        taps[2],
    )
    reads = [Span(work.a.buffer), Span(work.b.buffer)]
    sums = replace(product, work=made, units=made.unit_count, reads=reads, writes=[Span(buffer)])
    estimate = WorkEstimate({"add": buffer.shape.elements})
    return sums, ComputeSet(
        buffer.name, added, added.unit_count, [Span(buffer)], [Span(written)], estimate, product.op_name
    )


def _padded(field: tuple[int, int]) -> tuple[int, int]:
    return field[0] + WINDOW - 1, field[1] + WINDOW - 1


def _moved(address: Address, offset: int) -> Address:
    return replace(address, offset=address.offset + int(offset))


def _partition(made: WinogradProduct) -> Partition | None:
    """The elements that each unit writes, where its rows are contiguous."""
    rows, columns = made.field
    column = 4 * made.outputs
    dense = made.strides_c == (column * rows * columns, column * columns, column)
    if not dense or rows % OUTPUTS or made.c.buffer.shape.elements != made.images * rows * columns * made.outputs:
        return None
    return Partition(made.outputs * columns, made.images * rows, OUTPUTS * made.unit_rows)


def _strides(offsets: Offsets, extents: tuple[int, int, int]) -> Strides | None:
    """The strides along three dimensions, if offsets are those of all their positions in order."""
    grid = offsets.table.reshape(extents) - offsets.table[0]
    last = (int(grid[-1, 0, 0]), int(grid[0, -1, 0]), int(grid[0, 0, -1]))
    strides = tuple(each // max(1, extent - 1) for each, extent in zip(last, extents, strict=True))
    first, second, third = (np.arange(extent) * stride for extent, stride in zip(extents, strides, strict=True))
    even = np.array_equal(grid, np.add.outer(np.add.outer(first, second), third))
    return (strides[0], strides[1], strides[2]) if even else None


def _taps(table: np.ndarray, features: int, strides: Strides) -> tuple[int, ...] | None:
    """The numbers of the taps by row and column of the window, if a table has all features of each, one by one."""
    starts = table[::features]
    every = np.arange(WINDOW)
    window = np.add.outer(every * strides[1], every * strides[2]).reshape(-1) + starts.min()
    order = np.argsort(starts, kind="stable")[np.argsort(np.argsort(window, kind="stable"), kind="stable")]
    whole = np.array_equal(table, np.add.outer(starts, 4 * np.arange(features)).reshape(-1))
    return tuple(order.tolist()) if whole and np.array_equal(starts[order], window) else None
