"""Copies between strided views, and fills, as generated codelets."""

from __future__ import annotations

from engine.ir.shape import Shape
from engine.ir.strides import byte_strides
from engine.program.builder import ProgramBuilder
from engine.program.loops import run_draft
from engine.program.nest import Apply, Constant, Input, Node, Operation, Store
from engine.program.nests import Draft, Reached
from engine.program.program import Address, Buffer, ComputeSet, Partition, Span, WorkEstimate
from engine.program.views import View, whole
from engine.program.work.copy import TRANSPOSED_COLUMNS, TransposeWork

LEAST_ROWS, LEAST_COLUMNS, LEAST_ELEMENTS = 16, 8, 4096
"""The least rows, columns and elements in total for which a copy in blocks is worth it. A block of AVX-512 is
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
    work = TransposeWork(
        Address(source.buffer, source.offset),
        Address(target.buffer, target.offset),
        *(sizes[row], sizes[column], source.strides[row], target.strides[column]),
        tuple((sizes[d], source.strides[d], target.strides[d]) for d in others),
    )
    written = Span(target.buffer, _partition(target, row, column, others))
    work_estimate = WorkEstimate(elements={"copy": source.shape.elements}, element_type=source.shape.element_type)
    builder.emit(
        ComputeSet(
            name,
            work,
            work.unit_count,
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
    if target.offset or target.strides[column] != expected or sizes[column] % TRANSPOSED_COLUMNS:
        return None
    expected *= sizes[column]
    for d in reversed(others):
        if target.strides[d] != expected:
            return None
        expected *= sizes[d]
        rows *= sizes[d]
    return Partition(sizes[row], rows, TRANSPOSED_COLUMNS) if expected == target.buffer.shape.bytes else None


def copy(
    builder: ProgramBuilder, name: str, source: View, target: View, op_name: str = "", elidable: bool = False
) -> None:
    """target[i] = source[i], converted to the target's element type; the views have the same dimensions."""
    transposed = transposes(source, target)
    if transposed is not None:
        emit_transpose(builder, name, source, target, transposed, op_name)
        return
    loops = [d for d, size in enumerate(source.shape.dimensions) if size != 1]
    extents = tuple(source.shape.dimensions[d] for d in loops) or (1,)
    nodes: list[Node] = [Input(0)]
    have, want = source.shape.element_type, target.shape.element_type
    if have != want:
        nodes.append(Apply(Operation("convert", want, (have,)), (0,)))
    reached = [_reached(source, 0, loops), _reached(target, 0, loops, writes=True)]
    stores = [Store(len(nodes) - 1, 1)]
    draft = Draft(extents, (False,) * len(extents), nodes, reached, stores)
    run_draft(builder, name, draft, [source.buffer], [target.buffer], op_name, elidable if have == want else None)


def copy_buffer(
    builder: ProgramBuilder, name: str, source: Buffer, target: Buffer, op_name: str = "", elidable: bool = False
) -> None:
    """Copies all elements of a buffer to another one with as many."""
    copy(builder, name, whole(source, target.shape), whole(target, target.shape), op_name, elidable)


def fill(builder: ProgramBuilder, name: str, target: View, value: Buffer | Constant, op_name: str = "") -> None:
    """target[i] = value, which is a constant or a buffer of one element."""
    loops = [d for d, size in enumerate(target.shape.dimensions) if size != 1]
    extents = tuple(target.shape.dimensions[d] for d in loops) or (1,)
    zeros = (0,) * len(extents)
    written = _reached(target, 0, loops, writes=True)
    if isinstance(value, Constant):
        draft = Draft(extents, (False,) * len(extents), [value], [written], [Store(0, 0)])
        run_draft(builder, name, draft, [], [target.buffer], op_name)
        return
    reached = [Reached(target.shape.element_type, 0, 0, zeros), written]
    draft = Draft(extents, (False,) * len(extents), [Input(0)], reached, [Store(0, 1)])
    run_draft(builder, name, draft, [value], [target.buffer], op_name)


def _reached(view: View, number: int, loops: list[int], writes: bool = False) -> Reached:
    strides = tuple(view.strides[d] for d in loops) or (0,)
    return Reached(view.shape.element_type, number, view.offset, strides, writes)


def part(buffer: Buffer, shape: Shape, starts: tuple[int, ...], steps: tuple[int, ...], seen: Shape) -> View:
    """The elements starts + i * steps of an array, as a view of shape `seen`."""
    strides = byte_strides(shape)
    offset = sum(s * a for s, a in zip(strides, starts, strict=True))
    return View(buffer, seen, offset, tuple(s * k for s, k in zip(strides, steps, strict=True)))
