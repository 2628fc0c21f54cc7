"""The compute sets of Winograd's convolutions and of their gradients by the kernel, in place of contractions."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from engine.codelets.convolutions.winograd_sizes import GRADIENT_BLOCK, TAPS, WINDOW, position_bytes, positions
from engine.ir.shape import Shape
from engine.machine_code.costs import MOST_UNITS
from engine.program.buffer import Address, Buffer
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import ComputeSet, Partition, Span, WorkEstimate
from engine.program.work.contraction import Contraction
from engine.program.work.offsets import Offsets
from engine.program.work.winograd import WinogradKernel, WinogradProduct
from engine.program.work.winograd_gradient import WinogradGradient, WinogradSums
from engine.program.work.winograd_tiles import Depth, Strides

GRADIENT_UNITS = 16
"""Units of a gradient: each part of the tiles has its own sums, to be added."""
PART_TILES = 128
"""Fewest tiles of a part."""

Sets = tuple[ComputeSet, ComputeSet]


def convolution_sets(
    product: ComputeSet, work: Contraction, size: ConvolutionSize, written: Buffer, tile: int
) -> Sets | None:
    """Makes the transform of the kernel and the products by its tiles, if all three arrays are evenly spaced."""
    field, slices, taps_deep = (size.field[-2], size.field[-1]), prod(size.field[:-2]), prod(size.taps[:-2])
    features = taps_deep * size.inputs
    if work.size != (1, size.batch * slices * field[0] * field[1], size.outputs, TAPS * features):
        return None
    row_c = _in_items_of(work, written)
    strides_c = even_strides(row_c, (size.batch * slices, *field))
    parts = work.k_a.table.reshape(taps_deep, TAPS * size.inputs)
    found = _deep_strides(work.row_a.table.reshape(size.batch, slices, *field), parts)
    if found is None or strides_c is None:
        return None
    strides_a, slice_a = found
    orders = {_taps(each, size.inputs, strides_a, _item(work)) for each in parts}
    taps = orders.pop()
    if orders or taps is None:
        return None
    # Features of all slices for each tap of the window, from the first slice of inputs on.
    order = np.argsort(parts.min(axis=1), kind="stable")
    k_b = Offsets(work.k_b.table.reshape(taps_deep, TAPS, size.inputs)[order].swapaxes(0, 1).reshape(-1))
    columns = position_bytes(features, size.outputs) // 4
    buffer = Buffer(f"{product.name}.transformed", Shape("f32", (positions(tile), columns)))
    kernel = WinogradKernel(work.b, Address(buffer), k_b, taps, work.columns, work.stride_b, work.operand_type, tile)
    tile_rows = size.batch * slices * -(-field[0] // tile)
    made = WinogradProduct(
        _moved(work.a, work.row_a.table[0] + work.k_a.table.min()),
        Address(buffer),
        _moved(replace(work.c, buffer=written), row_c.table[0]),
        size.batch * slices,
        _padded(field),
        (0, 0),
        field,
        features,
        size.outputs,
        strides_a,
        strides_c,
        -(-tile_rows // MOST_UNITS),
        Depth(slices, slice_a, taps_deep),
        work.operand_type,
        written.shape.element_type,
        tile,
    )
    transform = ComputeSet(
        buffer.name, kernel, kernel.unit_count, [Span(work.b.buffer)], [Span(buffer)], op_name=product.op_name
    )
    reads, writes = [Span(work.a.buffer), Span(buffer)], [Span(written, _partition(made))]
    return transform, replace(product, work=made, units=made.unit_count, reads=reads, writes=writes)


def gradient_sets(
    product: ComputeSet, work: Contraction, size: ConvolutionSize, written: Buffer, tile: int
) -> Sets | None:
    """Makes the partial sums and the taps of a gradient by the kernel, if all three arrays are evenly spaced."""
    slices, deep, field = prod(size.taps[:-2]), prod(size.field[:-2]), (size.taps[-2], size.taps[-1])
    images, features = size.inputs * slices, size.batch
    item, row_c = _item(work), _in_items_of(work, written)
    # Few features are grouped: C's columns then also count the window's columns, from the last to the first, and the
    # columns of B slide over rows of gradients with zeros before and after.
    group = work.columns // size.outputs
    if group not in (1, WINDOW) or work.stride_b != item or (group > 1 and len(size.taps) > 2):
        return None
    slid = images, field[0], field[1] + group - 1
    if work.size != (1, deep * TAPS // group * features, group * size.outputs, slid[0] * slid[1] * slid[2]):
        return None
    sections, of_c = (each.table.reshape(deep, -1) for each in (work.row_a, row_c))
    found = _deep_strides(work.k_a.table.reshape(size.inputs, slices, *slid[1:]), sections)
    strides_g, slice_c = even_strides(work.k_b, slid), int(of_c[-1, 0] - of_c[0, 0]) // max(1, deep - 1)
    if found is None or strides_g is None:
        return None
    strides_a, slice_a = found
    for table, step in ((sections, slice_a), (of_c, slice_c)):
        if not np.array_equal(table, np.add.outer(np.arange(deep) * step, table[0])):
            return None
    window = WINDOW // group, WINDOW, features
    of_taps, taps = (even_strides(Offsets(each[0]), window) for each in (sections, of_c))
    if of_taps is None or taps is None:
        return None
    column, column_c = (each * size.outputs for each in (item, written.shape.dtype.itemsize))
    if group == 1:
        begin, rows, columns, expected = 0, taps[0], np.arange(WINDOW) * taps[1], (*strides_a[1:], item)
    elif strides_g[2] == column:
        begin, rows, columns = (WINDOW - 1) * column, taps[1], np.arange(WINDOW)[::-1] * column_c
        expected = (0, strides_a[1], item)
    else:
        return None
    if of_taps != expected or strides_a[2] < 0:
        return None
    features *= deep
    tiles = images * -(-field[0] // tile) * -(-field[1] // tile)
    parts = max(1, min(GRADIENT_UNITS // -(-features // GRADIENT_BLOCK), tiles // PART_TILES))
    buffer = Buffer(
        f"{product.name}.sums", Shape("f32", (parts, positions(tile), position_bytes(features, size.outputs) // 4))
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
        Depth(slices, slice_a, deep),
        work.operand_type,
        tile,
    )
    added = WinogradSums(
        Address(buffer),
        _moved(replace(work.c, buffer=written), row_c.table[0]),
        made.parts,
        features,
        size.outputs,
        Offsets(np.add.outer(np.arange(WINDOW) * rows, columns).reshape(-1)),
        taps[2],
        deep,
        slice_c,
        written.shape.element_type,
        tile,
    )
    reads = [Span(work.a.buffer), Span(work.b.buffer)]
    sums = replace(product, work=made, units=made.unit_count, reads=reads, writes=[Span(buffer)])
    estimate = WorkEstimate({"add": buffer.shape.elements})
    return sums, ComputeSet(
        buffer.name, added, added.unit_count, [Span(buffer)], [Span(written)], estimate, product.op_name
    )


def _item(work: Contraction) -> int:
    """Bytes of an element of A and B."""
    return Shape(work.operand_type).dtype.itemsize


def _in_items_of(work: Contraction, written: Buffer) -> Offsets:
    """The rows of C in the array with the sums, whose elements may be narrower than partial sums."""
    return Offsets(work.row_c.table // Shape(work.result_type).dtype.itemsize * written.shape.dtype.itemsize)


def _padded(field: tuple[int, int]) -> tuple[int, int]:
    return field[0] + WINDOW - 1, field[1] + WINDOW - 1


def _moved(address: Address, offset: int) -> Address:
    return replace(address, offset=address.offset + int(offset))


def _partition(made: WinogradProduct) -> Partition | None:
    """The elements that each unit writes, where its rows are contiguous."""
    rows, columns = made.field
    column = Shape(made.result_type).dtype.itemsize * made.outputs
    dense = made.strides_c == (column * rows * columns, column * columns, column)
    if not dense or rows % made.tile or made.c.buffer.shape.elements != made.images * rows * columns * made.outputs:
        return None
    return Partition(made.outputs * columns, made.images * rows, made.tile * made.unit_rows)


def even_strides(offsets: Offsets, extents: tuple[int, int, int]) -> Strides | None:
    """The strides along three dimensions, if they give the offsets of all positions in order; else None."""
    grid = offsets.table.reshape(extents) - offsets.table[0]
    last = (int(grid[-1, 0, 0]), int(grid[0, -1, 0]), int(grid[0, 0, -1]))
    strides = tuple(each // max(1, extent - 1) for each, extent in zip(last, extents, strict=True))
    first, second, third = (np.arange(extent) * stride for extent, stride in zip(extents, strides, strict=True))
    even = np.array_equal(grid, np.add.outer(np.add.outer(first, second), third))
    return (strides[0], strides[1], strides[2]) if even else None


def _deep_strides(rows: np.ndarray, parts: np.ndarray) -> tuple[Strides, int] | None:
    """Finds the strides of images, rows and columns, and of slices, in positions by image, slice, row and column.

    `parts` has the taps of each slice that a slice of outputs reads. A single slice has stride 0.
    """
    images, slices, *field = rows.shape
    strides = even_strides(Offsets(rows[:, 0].reshape(-1)), (images, field[0], field[1]))
    deep = even_strides(Offsets(rows[0].reshape(-1)), (slices, field[0], field[1]))
    begins = np.sort(parts.min(axis=1))
    if strides is None or deep is None:
        return None
    slice_a = int(deep[0] if slices > 1 else begins[1] - begins[0] if len(begins) > 1 else 0)
    grid = np.add.outer(np.arange(images) * strides[0], np.arange(slices) * slice_a)
    even = np.array_equal(rows[:, :, 0, 0] - rows[0, 0, 0, 0], grid) and not (np.diff(begins) != slice_a).any()
    return (strides, slice_a) if even else None


def _taps(table: np.ndarray, features: int, strides: Strides, item: int) -> tuple[int, ...] | None:
    """The numbers of the taps by row and column of the window, if a table has all features of each, one by one."""
    starts = table[::features]
    every = np.arange(WINDOW)
    window = np.add.outer(every * strides[1], every * strides[2]).reshape(-1) + starts.min()
    order = np.argsort(starts, kind="stable")[np.argsort(np.argsort(window, kind="stable"), kind="stable")]
    whole = np.array_equal(table, np.add.outer(starts, item * np.arange(features)).reshape(-1))
    return tuple(order.tolist()) if whole and np.array_equal(starts[order], window) else None
