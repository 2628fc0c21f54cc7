"""3 x 3 convolutions of stride 1 by Winograd's F(2 x 2, 3 x 3), where fewer multiplications save more than it costs.

For the host only: the program that the device model estimates has contractions.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from engine.codelets.winograd_sizes import OUTPUTS, POSITIONS, TAPS, WINDOW, position_bytes, whole_vectors
from engine.ir.shape import Shape
from engine.machine_code.costs import MOST_UNITS
from engine.program.buffer import Address, Buffer
from engine.program.host_passes.split_products import is_split
from engine.program.program import ComputeSet, Partition, Program, Span
from engine.program.rewriter import ProgramRewriter
from engine.program.work.contraction import Contraction
from engine.program.work.winograd import WinogradKernel, WinogradProduct

TRANSFORM = 80
"""Multiply-adds that take as long as a transform of a tile's feature, of input or output (timed on an EPYC)."""
KERNEL_TRANSFORM = 300
"""The same for the taps of an input and an output feature."""
WORTH = 0.85
"""Share of the multiply-adds at which transforming is worth it. Chosen by hand."""

Strides = tuple[int, int, int]


def use_winograd(program: Program) -> Program:
    """Transforms the convolutions for which it is faster, unless SOFTWARE_IPU_WINOGRAD is 0 in the environment."""
    if program.exceptions is not None or os.environ.get("SOFTWARE_IPU_WINOGRAD", "").strip() == "0":
        return program
    rewriter = ProgramRewriter(program)
    changed = False
    for at, each in enumerate(program.compute_sets):
        if not isinstance(each.work, Contraction) or not _pays(each) or is_split(program, each.work):
            continue
        written, added = _written(rewriter, at)
        made = None if written is None else _transformed(each, each.work, written)
        if made is not None:
            rewriter.replace(at, made[0])
            rewriter.insert_after(at, made[1])
            rewriter.remove(added)
            changed = True
    return rewriter.result() if changed else program


def _pays(product: ComputeSet) -> bool:
    """Whether a compute set is a whole convolution that takes less time transformed."""
    work, size = product.work, product.work_estimate.convolution
    if not isinstance(work, Contraction) or size is None or not work.is_float32:
        return False
    if size.groups != 1 or size.taps != (WINDOW, WINDOW) or min(size.field) < 2:
        return False
    if (*size.steps, *size.dilations) != (1.0, 1.0, 1.0, 1.0):
        return False
    rows = size.batch * size.field[0] * size.field[1]
    if work.size != (1, rows, size.outputs, TAPS * size.inputs):
        return False
    inputs, outputs = whole_vectors(size.inputs), whole_vectors(size.outputs)
    tiles = size.batch * -(-size.field[0] // OUTPUTS) * -(-size.field[1] // OUTPUTS)
    transforms = tiles * TRANSFORM * (inputs + outputs) + KERNEL_TRANSFORM * size.inputs * outputs
    return tiles * POSITIONS * size.inputs * outputs + transforms < WORTH * rows * TAPS * size.inputs * outputs


def _written(rewriter: ProgramRewriter, at: int) -> tuple[Buffer | None, list[int]]:
    """The array with the sums of a contraction, and the compute set that adds its partial sums to these, if any."""
    work = rewriter.sets[at].work
    assert isinstance(work, Contraction)
    if work.splits == 1:
        return work.c.buffer, []
    following = rewriter.sets[at + 1] if at + 1 < len(rewriter.sets) else None
    if following is None or following.name != f"{rewriter.sets[at].name}.add":
        return None, []
    if rewriter.uses.users(work.c.buffer) != [at, at + 1] or len(following.writes) != 1:
        return None, []
    return following.writes[0].buffer, [at + 1]


def _transformed(product: ComputeSet, work: Contraction, written: Buffer) -> tuple[ComputeSet, ComputeSet] | None:
    """The transform of the kernel and the products, if all three arrays are evenly spaced."""
    size = product.work_estimate.convolution
    assert size is not None
    field = size.field[0], size.field[1]
    strides_a, strides_c = (_strides(each.table, (size.batch, *field)) for each in (work.row_a, work.row_c))
    taps = None if strides_a is None else _taps(work.k_a.table, size.inputs, strides_a)
    if strides_a is None or strides_c is None or taps is None:
        return None
    bytes_of_position = position_bytes(size.inputs, size.outputs)
    buffer = Buffer(f"{product.name}.transformed", Shape("f32", (POSITIONS, bytes_of_position // 4)))
    kernel = WinogradKernel(work.b, Address(buffer), work.k_b, taps, work.columns, work.stride_b)
    tile_rows = size.batch * -(-field[0] // OUTPUTS)
    made = WinogradProduct(
        replace(work.a, offset=work.a.offset + int(work.row_a.table[0] + work.k_a.table.min())),
        Address(buffer),
        replace(work.c, buffer=written, offset=work.c.offset + int(work.row_c.table[0])),
        size.batch,
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


def _partition(made: WinogradProduct) -> Partition | None:
    """The elements that each unit writes, where its rows are contiguous."""
    rows, columns = made.field
    column = 4 * made.outputs
    dense = made.strides_c == (column * rows * columns, column * columns, column)
    if not dense or rows % OUTPUTS or made.c.buffer.shape.elements != made.images * rows * columns * made.outputs:
        return None
    return Partition(made.outputs * columns, made.images * rows, OUTPUTS * made.unit_rows)


def _strides(table: np.ndarray, extents: tuple[int, int, int]) -> Strides | None:
    """The strides of images, rows and columns, if a table has all of these in order."""
    grid = table.reshape(extents) - table[0]
    strides = int(grid[-1, 0, 0]) // max(1, extents[0] - 1), int(grid[0, 1, 0]), int(grid[0, 0, 1])
    images, rows, columns = (np.arange(extent) * stride for extent, stride in zip(extents, strides, strict=True))
    return strides if np.array_equal(grid, np.add.outer(np.add.outer(images, rows), columns)) else None


def _taps(table: np.ndarray, features: int, strides: Strides) -> tuple[int, ...] | None:
    """The numbers of the taps by row and column of the window, if a table has all features of each, one by one."""
    starts = table[::features]
    every = np.arange(WINDOW)
    window = np.add.outer(every * strides[1], every * strides[2]).reshape(-1) + starts.min()
    order = np.argsort(starts, kind="stable")[np.argsort(np.argsort(window, kind="stable"), kind="stable")]
    whole = np.array_equal(table, np.add.outer(starts, 4 * np.arange(features)).reshape(-1))
    return tuple(order.tolist()) if whole and np.array_equal(starts[order], window) else None
