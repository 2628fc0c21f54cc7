"""Indexed contractions: the one form to which every dot and convolution is lowered.

C[row, column] = sum over k of A[row, k] * B[k, column], repeated over batches, with tables of byte offsets
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

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


@dataclass(frozen=True, slots=True)
class ContractionDraft:
    """Operands with base offsets, and int64 byte-offset tables; columns are contiguous in C."""

    name: str
    a: Buffer
    b: Buffer
    c: Buffer
    offset_a: int
    offset_b: int
    row_a: np.ndarray
    row_c: np.ndarray
    k_a: np.ndarray
    k_b: np.ndarray
    columns: int
    stride_b: int
    batch_a: np.ndarray
    batch_b: np.ndarray
    batch_c: np.ndarray
    op_name: str = ""
    operand_type: str | None = None
    """The element type of A and B; None stands for C's type."""
    useful_multiply_adds: int | None = None
    """Multiply-adds of the operation, without those of zeros in the operands; None if there are no such zeros."""
    windowed: bool = False
    """Whether the host copies windows of images for groups of features; a unit then has all batches."""

    @property
    def is_depthwise(self) -> bool:
        """Whether lanes can compute batches: each has one column, and batches are neighbours in all three arrays."""
        size, batches = self.c.shape.dtype.itemsize, (self.batch_a, self.batch_b, self.batch_c)
        if self.columns != 1 or len(self.batch_a) < LEAST_DEPTH or not len(self.k_a):
            return False
        if self.c.shape.element_type not in DEPTHWISE_TYPES or self.operand_type not in (
            None,
            self.c.shape.element_type,
        ):
            return False
        return all(bool(np.all(np.diff(each) == size)) for each in batches)

    @property
    def multiply_adds(self) -> int:
        return len(self.row_a) * len(self.k_a) * self.columns * len(self.batch_a)

    @property
    def size(self) -> ProductSize:
        """The sizes and layouts on which the division into units depends."""
        written = len(self.row_c) * self.columns * len(self.batch_c)
        return ProductSize(
            *(len(self.batch_a), len(self.row_a), self.columns, len(self.k_a)),
            fills=written == self.c.shape.elements,
            of_state=self.b.is_state,
            dense_columns=self.stride_b == self.b.shape.dtype.itemsize,
            grouped=rows_together(self.row_a, self.c.shape.dtype.itemsize) == GROUP,
            depthwise=self.is_depthwise,
            windowed=self.windowed,
        )

    @property
    def work_estimate(self) -> int:
        """The multiply-adds of the operation itself."""
        return self.multiply_adds if self.useful_multiply_adds is None else self.useful_multiply_adds


def emit_contraction(builder: ProgramBuilder, contraction: ContractionDraft) -> None:
    """Emits the compute set of a contraction, and one more that adds partial sums where k is split.

    Raises UnsupportedOperation for element types that cannot be multiplied.
    """
    shape = contraction.c.shape
    if not shape.elements:
        return
    size = contraction.size
    cut, depthwise = grid(size, builder.rows), size.depthwise
    split = cut.k < len(contraction.k_a)
    target, kind = contraction.c, shape.element_type
    operand_type = contraction.operand_type or kind
    pitch = 0
    if split:
        # Round to 16 bits once, after the partial sums are added: a single partial sum may be out of range.
        kind = accumulated_in(kind)
        contraction, pitch = _with_results_in(contraction, kind), shape.with_type(kind).bytes
        partial = Shape(kind, (-(-len(contraction.k_a) // cut.k), *shape.dimensions))
        target = builder.new_buffer(f"{contraction.name}.partial", partial)
    if not depthwise:
        check_multiplied(operand_type, kind)
    work = replace(_work(contraction, target, cut, operand_type, kind, pitch), depthwise=depthwise)
    if not work.unit_count:
        return
    compute_set = ComputeSet(
        contraction.name,
        work,
        work.unit_count,
        [Span(contraction.a, _rows_read(contraction, cut)), Span(contraction.b, _batches_read(contraction, cut))],
        [Span(target, _partition(contraction, cut, work.unit_count, work.splits))],
        WorkEstimate(multiply_adds=contraction.work_estimate, element_type=shape.element_type),
        contraction.op_name,
    )
    builder.emit(compute_set)
    if split:
        _add_partials(builder, contraction, target, work.splits)


def _with_results_in(contraction: ContractionDraft, kind: str) -> ContractionDraft:
    """The contraction with C's offsets scaled to an array of wider elements."""
    wider = Shape(kind).dtype.itemsize // contraction.c.shape.dtype.itemsize
    if wider == 1:
        return contraction
    return replace(contraction, row_c=contraction.row_c * wider, batch_c=contraction.batch_c * wider)


def _work(
    contraction: ContractionDraft, target: Buffer, cut: Grid, operand_type: str, result_type: str, pitch: int
) -> Contraction:
    return Contraction(
        Address(contraction.a, contraction.offset_a),
        Address(contraction.b, contraction.offset_b),
        Address(target),
        Offsets(contraction.row_a),
        Offsets(contraction.row_c),
        Offsets(contraction.k_a),
        Offsets(contraction.k_b),
        Offsets(contraction.batch_a),
        Offsets(contraction.batch_b),
        Offsets(contraction.batch_c),
        columns=contraction.columns,
        stride_b=contraction.stride_b,
        grid=cut,
        operand_type=operand_type,
        result_type=result_type,
        partial_pitch=pitch,
    )


def _partition(contraction: ContractionDraft, cut: Grid, units: int, splits: int) -> Partition | None:
    """The elements of C that each unit owns, where C's rows are contiguous."""
    item = contraction.c.shape.dtype.itemsize
    rows, columns, batches = len(contraction.row_c), contraction.columns, len(contraction.batch_c)
    if splits > 1:
        return Partition(contraction.c.shape.elements, splits, 1) if units == splits else None
    if contraction.is_depthwise:
        dense = rows * batches == contraction.c.shape.elements and bool(
            np.all(np.diff(contraction.row_c) == batches * item)
        )
        return Partition(batches, rows, cut.rows) if dense else None
    dense = rows <= 1 or bool(np.all(np.diff(contraction.row_c) == columns * item))
    if not dense or (batches > 1 and not bool(np.all(np.diff(contraction.batch_c) == rows * columns * item))):
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


def _rows_read(contraction: ContractionDraft, cut: Grid) -> Partition | None:
    """The elements of A that each unit reads, where these are contiguous rows or batches."""
    if contraction.is_depthwise:  # units have all batches
        return None
    if cut.columns < contraction.columns or cut.k < len(contraction.k_a):
        return None
    if len(contraction.batch_a) == 1:
        inside = contraction.offset_a + contraction.k_a
        return _parts(contraction.a.shape, contraction.row_a, inside, cut.rows)
    if len(contraction.row_a) % cut.rows:
        return None
    begins = np.add.outer(contraction.batch_a, contraction.row_a[:: cut.rows]).reshape(-1)
    inside = contraction.offset_a + np.add.outer(contraction.row_a[: cut.rows], contraction.k_a)
    return _parts(contraction.a.shape, begins, inside, 1)


def _batches_read(contraction: ContractionDraft, cut: Grid) -> Partition | None:
    """The elements of B that each unit reads, where these are contiguous batches."""
    rows, columns, k = len(contraction.row_a), contraction.columns, len(contraction.k_a)
    batches = 1 if contraction.is_depthwise else len(contraction.batch_b)
    if batches == 1 or cut.rows < rows or cut.columns < columns or cut.k < k:
        return None
    inside = contraction.offset_b + np.add.outer(contraction.k_b, np.arange(columns) * contraction.stride_b)
    return _parts(contraction.b.shape, contraction.batch_b, inside, 1)


def _parts(shape: Shape, begins: np.ndarray, inside: np.ndarray, grain: int) -> Partition | None:
    """Units of `grain` neighbouring slices of an array, if reads that begin in a slice do not leave it."""
    pitch, rest = divmod(shape.bytes, len(begins))
    if rest or not bool(np.all(begins == np.arange(len(begins)) * pitch)):
        return None
    if inside.min(initial=0) < 0 or inside.max(initial=0) >= pitch:
        return None
    return Partition(pitch // shape.dtype.itemsize, len(begins), grain)


def _add_partials(builder: ProgramBuilder, contraction: ContractionDraft, partial: Buffer, splits: int) -> None:
    draft = sum_of_partials(contraction.c.shape, partial.shape.element_type, splits)
    run_draft(builder, f"{contraction.name}.add", draft, [partial], [contraction.c], contraction.op_name)


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
