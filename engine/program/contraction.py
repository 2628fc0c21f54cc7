"""Indexed contractions: the one form to which every dot and convolution is lowered.

C[row, column] = sum over k of A[row, k] * B[k, column], repeated over batches, with tables of byte offsets
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from engine.frozen import frozen
from engine.ir import Shape
from engine.program.builder import ProgramBuilder, RowBlocks
from engine.program.loops import run_draft, written_partition
from engine.program.nest import Constant, Input, Reduction
from engine.program.nests import Draft, Reached, accumulated_in
from engine.program.product_units import ProductSize, check_multiplied, grid
from engine.program.program import Address, Buffer, ComputeSet, Partition, Span, WorkEstimate
from engine.program.units import cut as divided
from engine.program.work.contraction import Contraction, Grid
from engine.program.work.offsets import GROUP, Offsets, rows_together

DEPTHWISE_TYPES = ("f32", "f16", "bf16")
LEAST_DEPTH = 2
"""Fewest batches that lanes may compute."""


def undivided(
    a: Address,
    b: Address,
    c: Address,
    *,
    rows: tuple[np.ndarray, np.ndarray],
    terms: tuple[np.ndarray, np.ndarray],
    batches: tuple[np.ndarray, np.ndarray, np.ndarray],
    columns: int,
    stride_b: int,
    operand_type: str,
) -> Contraction:
    """A contraction as one unit, by tables of byte offsets, int64: of rows in A and C, of terms in A and B, of batches.

    Columns are contiguous in C.
    """
    (row_a, row_c), (k_a, k_b) = map(Offsets, rows), map(Offsets, terms)
    batch_a, batch_b, batch_c = map(Offsets, batches)
    return Contraction(
        *(a, b, c, row_a, row_c, k_a, k_b, batch_a, batch_b, batch_c),
        columns=columns,
        stride_b=stride_b,
        grid=Grid(len(rows[0]), columns, len(terms[0])),
        operand_type=operand_type,
        result_type=c.buffer.shape.element_type,
    )


@frozen
class ContractionDraft:
    """A contraction to be divided into units.

    `useful_multiply_adds` are those of the operation, without those of zeros in the operands; None if there are no such
    zeros. If it is `windowed`, the host copies windows of images for groups of features; a unit then has all batches.
    """

    name: str
    work: Contraction
    op_name: str = ""
    useful_multiply_adds: int | None = None
    windowed: bool = False

    @property
    def is_depthwise(self) -> bool:
        """Whether lanes can compute batches: each has one column, and batches are neighbours in all three arrays."""
        work, kind = self.work, self.work.result_type
        if work.columns != 1 or len(work.batch_a) < LEAST_DEPTH or not len(work.k_a):
            return False
        if kind not in DEPTHWISE_TYPES or work.operand_type != kind:
            return False
        size, batches = Shape(kind).dtype.itemsize, (work.batch_a, work.batch_b, work.batch_c)
        return all(bool(np.all(np.diff(each.table) == size)) for each in batches)

    @property
    def size(self) -> ProductSize:
        """The sizes and layouts on which the division into units depends."""
        work, shape = self.work, self.work.c.buffer.shape
        return ProductSize(
            *work.size,
            fills=len(work.row_c) * work.columns * len(work.batch_c) == shape.elements,
            of_state=work.b.buffer.is_state,
            dense_columns=work.stride_b == work.b.buffer.shape.dtype.itemsize,
            grouped=rows_together(work.row_a.table, shape.dtype.itemsize) == GROUP,
            depthwise=self.is_depthwise,
            windowed=self.windowed,
        )


def emit_contraction(builder: ProgramBuilder, contraction: ContractionDraft) -> None:
    """Emits the compute set of a contraction, and one more that adds partial sums where k is split.

    Raises UnsupportedOperation for element types that cannot be multiplied.
    """
    name, target = contraction.name, contraction.work.c.buffer
    shape = target.shape
    if not shape.elements:
        return
    size = contraction.size
    work = replace(contraction.work, grid=grid(size, builder.rows), depthwise=size.depthwise)
    if work.splits > 1:
        # Round to 16 bits once, after the partial sums are added: a single partial sum may be out of range.
        kind = accumulated_in(shape.element_type)
        target = Buffer(f"{name}.partial", Shape(kind, (work.splits, *shape.dimensions)))
        work = _with_partials(work, target)
    if not size.depthwise:
        check_multiplied(work.operand_type, work.result_type)
    if not work.unit_count:
        return
    useful = contraction.useful_multiply_adds
    multiply_adds = prod(work.size) if useful is None else useful
    estimate = WorkEstimate(multiply_adds=multiply_adds, element_type=work.operand_type)
    reads = [Span(work.a.buffer, _rows_read(work)), Span(work.b.buffer, _batches_read(work))]
    writes = [Span(target, _partition(work, shape))]
    builder.emit(ComputeSet(name, work, work.unit_count, reads, writes, estimate, contraction.op_name))
    if work.splits > 1:
        draft = sum_of_partials(shape, work.result_type, work.splits)
        run_draft(builder, f"{name}.add", draft, [target], [contraction.work.c.buffer], contraction.op_name)


def _with_partials(work: Contraction, partial: Buffer) -> Contraction:
    """The contraction with partial sums in an array of elements that may be wider than C's."""
    kind, shape = partial.shape.element_type, work.c.buffer.shape
    wider = partial.shape.dtype.itemsize // shape.dtype.itemsize
    row_c, batch_c = Offsets(work.row_c.table * wider), Offsets(work.batch_c.table * wider)
    pitch = shape.with_type(kind).bytes
    return replace(work, c=Address(partial), row_c=row_c, batch_c=batch_c, result_type=kind, partial_pitch=pitch)


def _partition(work: Contraction, shape: Shape) -> Partition | None:
    """The elements of C, of that shape, that each unit owns, where C's rows are contiguous."""
    cut, splits, item = work.grid, work.splits, shape.dtype.itemsize
    batches, rows, columns, _ = work.size
    if splits > 1:
        return Partition(shape.elements, splits, 1) if work.unit_count == splits else None
    steps, pitches = np.diff(work.row_c.table), np.diff(work.batch_c.table)
    if work.depthwise:
        dense = rows * batches == shape.elements and bool(np.all(steps == batches * item))
        return Partition(batches, rows, cut.rows) if dense else None
    if not bool(np.all(steps == columns * item)) or not bool(np.all(pitches == rows * columns * item)):
        return None
    if cut.columns < columns:
        return Partition(1, columns, cut.columns) if batches == 1 and cut.rows >= rows else None
    if batches == 1:
        return Partition(columns, rows, cut.rows)
    if rows % min(cut.rows, rows):
        return None
    if cut.rows < rows:
        return Partition(columns, batches * rows, cut.rows)
    return Partition(columns * rows, batches, 1)


def _rows_read(work: Contraction) -> Partition | None:
    """The elements of A that each unit reads, where these are contiguous rows or batches."""
    height, row_a, k_a = work.grid.rows, work.row_a.table, work.k_a.table
    if work.depthwise or work.grid.columns < work.columns or work.splits > 1:  # depthwise units have all batches
        return None
    if len(work.batch_a) == 1:
        return _parts(work.a.buffer.shape, row_a, work.a.offset + k_a, height)
    if len(row_a) % height:
        return None
    begins = np.add.outer(work.batch_a.table, row_a[::height]).reshape(-1)
    inside = work.a.offset + np.add.outer(row_a[:height], k_a)
    return _parts(work.a.buffer.shape, begins, inside, 1)


def _batches_read(work: Contraction) -> Partition | None:
    """The elements of B that each unit reads, where these are contiguous batches."""
    batches, rows, columns, _ = work.size
    cut = work.grid.rows < rows or work.grid.columns < columns or work.splits > 1
    if work.depthwise or batches == 1 or cut:
        return None
    inside = work.b.offset + np.add.outer(work.k_b.table, np.arange(columns) * work.stride_b)
    return _parts(work.b.buffer.shape, work.batch_b.table, inside, 1)


def _parts(shape: Shape, begins: np.ndarray, inside: np.ndarray, grain: int) -> Partition | None:
    """Units of `grain` neighbouring slices of an array, if reads that begin in a slice do not leave it."""
    pitch, rest = divmod(shape.bytes, len(begins))
    if rest or not bool(np.all(begins == np.arange(len(begins)) * pitch)):
        return None
    if inside.min(initial=0) < 0 or inside.max(initial=0) >= pitch:
        return None
    return Partition(pitch // shape.dtype.itemsize, len(begins), grain)


def sum_of_partials(shape: Shape, kind: str, splits: int) -> Draft:
    """The loops that add partial sums of a type, [splits, elements of C]."""
    elements, inside, outside = shape.elements, Shape(kind).dtype.itemsize, shape.dtype.itemsize
    reached = [
        Reached(kind, 0, 0, (elements * inside, inside)),
        Reached(shape.element_type, 0, 0, (0, outside), writes=True, partial=True),
    ]
    zero = Constant(kind, "0.0" if kind[0] in "fbc" else "0")
    add = Reduction("add", (0,), (1,), (kind,), (1,))
    return Draft((splits, elements), (True, False), [Input(0), zero], reached, reductions=[add])


def share_of(size: ProductSize, c: Buffer, rows: RowBlocks | None) -> tuple[Partition | None, int]:
    """The elements of a dense C, [rows, batches, columns], that each unit of a product owns, and the number of units.

    The partition is None where units have slices of both rows and columns, and for several batches.
    """
    cut = grid(size, rows)
    splits = -(-size.k // cut.k)
    if splits > 1:
        kind = accumulated_in(c.shape.element_type)
        partial = Buffer("", Shape(kind, (splits, *c.shape.dimensions)))
        plan = divided(sum_of_partials(c.shape, kind, splits), [partial], [c], {}, rows)
        return written_partition(plan, c), plan.units
    if size.depthwise:
        return Partition(size.batches, size.rows, cut.rows), -(-size.rows // cut.rows)
    if size.batches > 1 or (cut.columns < size.columns and cut.rows < size.rows):
        return None, 1
    if cut.columns < size.columns:
        return Partition(1, size.columns, cut.columns), -(-size.columns // cut.columns)
    return Partition(size.columns, size.rows, cut.rows), -(-size.rows // cut.rows)
