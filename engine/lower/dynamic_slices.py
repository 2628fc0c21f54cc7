"""Lowers dynamic-slice and dynamic-update-slice."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction, Shape
from engine.ir.affine import row_major_strides
from engine.lower.context import Context, Value, lowering
from engine.lower.known_iterations import per_iteration
from engine.program.copies import copy_buffer
from engine.program.program import Address, Buffer, Partition, PerIteration, Slot, Span, WorkEstimate
from engine.program.units import SMALL_BYTES
from engine.program.work.base import Array
from engine.program.work.indexing import Counted, SliceWork


@lowering("dynamic-slice")
def lower_dynamic_slice(context: Context, instruction: Instruction) -> Value:
    operand, *starts = instruction.operands
    array = context.buffer(operand)
    box = context.result_buffer(instruction)
    _emit(context, instruction, (operand, array), (instruction, box), starts, into_array=False)
    return box


@lowering("dynamic-update-slice")
def lower_dynamic_update_slice(context: Context, instruction: Instruction) -> Value:
    """Copies the operand and writes the update into the copy; in place where the result is the operand's memory."""
    operand, update, *starts = instruction.operands
    source, box = context.buffer(operand), context.buffer(update)
    result = context.result_buffer(instruction)
    if result is not source:
        copy_buffer(context, f"{instruction.name}.copy", source, result, instruction.op_name, elidable=True)
    _emit(context, instruction, (operand, result), (update, box), starts, into_array=True)
    return result


def _emit(
    context: Context,
    instruction: Instruction,
    array: tuple[Instruction, Buffer],
    box: tuple[Instruction, Buffer],
    starts: list[Instruction],
    into_array: bool,
) -> None:
    shape, box_shape = array[0].array_shape, box[0].array_shape
    moved = _moved(context, shape, box_shape, starts)
    known = [None if moved else counted(context, start) for start in starts]
    rows = _rows(context, shape, box_shape)
    unit_bytes = rows.grain * rows.inner * shape.dtype.itemsize if rows else 0
    if not box_shape.elements:
        return
    scalars = [] if moved else [k or context.buffer(s) for k, s in zip(known, starts, strict=True)]
    work = SliceWork(
        Array(Address(array[1], 0, moved), shape),
        Array(Address(box[1]), box_shape),
        tuple(s if isinstance(s, Counted) else Array(Address(s), s.shape) for s in scalars),
        *(into_array, unit_bytes, context.iteration.counter if context.iteration else 0),
    )
    inside = [Span(s) for s in scalars if isinstance(s, Buffer)]
    slot = Slot(moved, box_shape.bytes) if moved and work.is_one_run else None
    spans = [Span(array[1], rows, slot)], [Span(box[1], rows)]
    reads, writes = (spans[1], spans[0]) if into_array else spans
    estimate = WorkEstimate({instruction.opcode: box_shape.elements}, 0, box_shape.element_type)
    small = rows is None and box_shape.bytes < SMALL_BYTES
    context.emit_for(instruction, work, work.unit_count, [*reads, *inside], writes, estimate, one_worker=small)


def _moved(context: Context, array: Shape, box: Shape, starts: list[Instruction]) -> PerIteration | None:
    """Start of the box in each iteration of the loop around it, in bytes, if known; -1 where it is not used."""
    found = [per_iteration(context, start) for start in starts]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    offsets = np.zeros(len(known[0].values), np.int64)
    for d, (start, stride) in enumerate(zip(known, row_major_strides(array), strict=True)):
        limit = array.dimensions[d] - box.dimensions[d]
        offsets += np.clip(np.array(start.values, np.int64), 0, limit) * stride * array.dtype.itemsize
    taken = context.iteration.taken if context.iteration else None
    if taken is not None:
        offsets = np.where(taken, offsets, -1)
    return PerIteration(known[0].counter, tuple(offsets.tolist()))


def counted(context: Context, start: Instruction) -> Counted | None:
    """A start as an affine function of the count of the loop around it; None if it is not one."""
    if context.iteration is None or start.opcode == "constant":
        return None
    return line_in(context, context.iteration.loop, context.iteration.iterations, start)


def line_in(context: Context, loop: Instruction, iterations: int, start: Instruction) -> Counted | None:
    """An integer of a loop's body as an affine function of the count, if it is one and never overflows; else None."""
    line = context.trip_counts.line_of(loop, start)
    if line is None:
        return None
    first, growth = line
    limits = np.iinfo(start.array_shape.dtype)
    inside = all(limits.min <= value <= limits.max for value in (first, first + growth * (iterations - 1)))
    return Counted(first, growth) if inside else None


def _rows(context: Context, array: Shape, box: Shape) -> Partition | None:
    """The partition along the loop's rows, if the box has all of the array's rows, contiguous; else None."""
    partition = context.rows.partition(box) if context.rows else None
    if partition is None:
        return None
    first = next(d for d, size in enumerate(box.dimensions) if size != 1)
    return partition if array.dimensions[first:] == box.dimensions[first:] else None
