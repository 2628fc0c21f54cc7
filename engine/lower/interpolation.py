"""Lowers interpolations of images: units of the result's rows."""

from __future__ import annotations

from engine.ir import Instruction
from engine.ir.interpolation import INTERPOLATION, interpolation_matrices
from engine.lower.context import Context, Value, custom_call
from engine.program.program import Address, Partition, Span, WorkEstimate
from engine.program.work.base import MOST_UNITS, Array
from engine.program.work.interpolation import InterpolationWork, taps_of

SMALL = 1 << 13
"""Elements of a result that one worker computes."""


@custom_call(INTERPOLATION)
def lower_interpolation(context: Context, instruction: Instruction) -> Value:
    """Computes images by sums of source rows, and then by sums along columns."""
    source, target = context.buffer(instruction.operands[0]), context.result_buffer(instruction)
    _, _, source_width, channels = instruction.operands[0].array_shape.dimensions
    images, height, width, _ = instruction.array_shape.dimensions
    rows, columns = map(taps_of, interpolation_matrices(instruction))
    unit_rows = -(-images * height // MOST_UNITS)
    given = Array(Address(source), instruction.operands[0].array_shape)
    work = InterpolationWork(given, Array(Address(target), instruction.array_shape), rows, columns, unit_rows)
    terms = channels * images * (height * source_width * rows.mean + height * width * columns.mean)
    estimate = WorkEstimate({"multiply": int(terms), "add": int(terms)}, 0, "f32")
    written = Span(target, Partition(width * channels, images * height, unit_rows))
    small = instruction.array_shape.elements <= SMALL
    context.emit_for(instruction, work, work.unit_count, [source], [written], estimate, one_worker=small)
    return target
