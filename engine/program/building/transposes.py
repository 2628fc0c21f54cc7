"""Copies that make another dimension the innermost one, in blocks: a strided copy would miss the cache throughout."""

from __future__ import annotations

from engine.codelets.transpose import COLUMNS, SCRATCH_BYTES, encode_transpose, transpose
from engine.program.building.builder import ProgramBuilder
from engine.program.building.views import View
from engine.program.program import Address, ComputeSet, Partition, Span, WorkEstimate
from engine.program.work.codelet_work import CodeletWork

LEAST_ROWS, LEAST_COLUMNS, LEAST_ELEMENTS = 16, 8, 4096
"""Fewest elements of both dimensions and in total for which a copy in blocks is worth it: a block of AVX-512 is
16 x 16."""


def transposes(source: View, target: View) -> tuple[int, int] | None:
    """The dimensions that are innermost in target and source, if a copy in blocks is worth it."""
    if source.shape.element_type != target.shape.element_type or source.item_bytes != 4:
        return None
    sizes = source.shape.dimensions
    if source.shape.elements < LEAST_ELEMENTS:
        return None
    row = next((d for d, size in enumerate(sizes) if target.strides[d] == 4 and size >= LEAST_ROWS), None)
    column = next((d for d, size in enumerate(sizes) if source.strides[d] == 4 and size >= LEAST_COLUMNS), None)
    if row is None or column is None or row == column or source.strides[row] < 4 * sizes[column]:
        return None
    return row, column


def emit_transpose(
    builder: ProgramBuilder, name: str, source: View, target: View, dimensions: tuple[int, int], op_name: str
) -> None:
    """Emits one compute set for target[i] = source[i]; `dimensions` are the result of `transposes`."""
    row, column = dimensions
    sizes = source.shape.dimensions
    others = [d for d, size in enumerate(sizes) if d not in dimensions and size != 1]
    # Sort the matrices in the target's order, so that successive units write contiguously.
    others.sort(key=lambda d: -abs(target.strides[d]))
    parts, units = encode_transpose(
        (Address(source.buffer, source.offset), source.strides[row]),
        (Address(target.buffer, target.offset), target.strides[column]),
        *(sizes[row], sizes[column]),
        [(sizes[d], source.strides[d], target.strides[d]) for d in others],
    )
    written = Span(target.buffer, _partition(target, row, column, others))
    work_estimate = WorkEstimate(elements={"copy": source.shape.elements}, element_type=source.shape.element_type)
    builder.emit(
        ComputeSet(
            name,
            CodeletWork.of(transpose, parts, scratch=SCRATCH_BYTES),
            units,
            [Span(source.buffer)],
            [written],
            work_estimate,
            op_name,
        )
    )


def _partition(target: View, row: int, column: int, others: list[int]) -> Partition | None:
    """The slice of the target that a unit writes, where the target is dense and the slices are equal."""
    sizes = target.shape.dimensions
    expected, rows = 4 * sizes[row], sizes[column]
    if target.offset or target.strides[column] != expected or sizes[column] % COLUMNS:
        return None
    expected *= sizes[column]
    for d in reversed(others):
        if target.strides[d] != expected:
            return None
        expected *= sizes[d]
        rows *= sizes[d]
    return Partition(sizes[row], rows, COLUMNS) if expected == target.buffer.shape.bytes else None
