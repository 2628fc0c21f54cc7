"""Lowers select-and-scatter; all but gradients of max pooling are other operations by now."""

from __future__ import annotations

from engine.ir import Instruction
from engine.lower.context import Context, Value, lowering
from engine.passes.expand_select_and_scatter import is_pool_gradient, selected_by
from engine.program.program import Address, Partition, Span, WorkEstimate
from engine.program.units import SMALL_BYTES
from engine.program.work.base import Array
from engine.program.work.select_and_scatter import SelectAndScatterWork


@lowering("select-and-scatter")
def lower_select_and_scatter(context: Context, instruction: Instruction) -> Value:
    """Lowers select-and-scatter.

    Raises UnsupportedOperation for bodies that do more than compute on scalars.
    """
    direction = selected_by(instruction.called[0])
    if direction is None or not is_pool_gradient(instruction):
        raise context.unsupported(instruction)
    result, shape = context.result_buffer(instruction), instruction.array_shape
    operand, source, initial = (Array(Address(context.buffer(o)), o.array_shape) for o in instruction.operands)
    work = SelectAndScatterWork(operand, source, initial.address, Address(result), instruction["window"], direction)
    units, arrays = (
        work.unit_count,
        ((operand.address.buffer, shape), (source.address.buffer, source.shape), (result, shape)),
    )
    by_image = units > 1 and units == shape.dimensions[0]
    spans = [Span(b, Partition(s.elements // units, units, 1) if by_image else None) for b, s in arrays]
    reads, estimate = (
        [*spans[:2], Span(initial.address.buffer)],
        WorkEstimate({"select-and-scatter": shape.elements}, 0, shape.element_type),
    )
    small = shape.bytes < SMALL_BYTES
    context.emit_for(instruction, work, units, reads, [spans[2]], estimate, one_worker=small)
    return result
