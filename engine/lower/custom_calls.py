"""Lowers custom calls that run a user's code or check values: functions of the host, vertices, checks.

One worker calls a function of the host. All workers leave the step after a call, or a check, that fails. A vertex is
one compute set with a unit for each slice of rows.
"""

from __future__ import annotations

from math import prod

from engine.host_functions import bound_function
from engine.ir import Instruction, Shape
from engine.ir.device_operations import HOST_FUNCTION, VERTEX, target_of
from engine.ir.value_checks import VALUE_CHECK, ValueCheck
from engine.ir.vertices import Slice, VertexCall, arrays_of, results_of
from engine.lower.context import CUSTOM_CALLS, Context, Value, custom_call, lowering
from engine.program.program import Address, Buffer, Partition, Span, VertexCycles, WorkEstimate
from engine.program.work.custom_calls import CheckRecord, HostCall, ValueCheckWork, VertexCallWork, VertexSlice

GRAIN = 1 << 14
"""Elements of a unit of a check; one worker checks fewer than this in some microseconds."""
SMALL = 1 << 14
"""Elements up to which one worker runs all vertices."""


@lowering("custom-call")
def lower_custom_call(context: Context, instruction: Instruction) -> Value:
    """Lowers a custom call by its target. Raises UnsupportedOperation for one that the engine does not have."""
    lower = CUSTOM_CALLS.get(target_of(instruction) or "")
    if lower is None:
        raise context.unsupported(instruction)
    return lower(context, instruction)


@custom_call(HOST_FUNCTION)
def lower_host_function(context: Context, instruction: Instruction) -> Value:
    """The function's results and the token, which only orders calls: all calls touch the call block, in this order.

    Raises ConfigurationError for a function that no longer exists.
    """
    function, call = bound_function(instruction), context.call_block()
    operands = [context.buffer(operand) for operand in instruction.operands[:-1]]
    results = [context.result_buffer(instruction, k) for k in range(len(function.results))]
    work = HostCall(function, Address(call), tuple(map(Address, operands)), tuple(map(Address, results)))
    estimate = WorkEstimate({"copy": sum(b.shape.elements for b in (*operands, *results))})
    spans = [call, *operands], [call, *results]
    context.emit_for(instruction, work, 1, *spans, estimate, suffix=f".{function.function.name}", one_worker=True)
    context.mark("leave", 0)
    token = context.buffer(instruction.operands[-1])
    return token if isinstance(instruction.shape, Shape) else (*results, token)


@custom_call(VALUE_CHECK)
def lower_value_check(context: Context, instruction: Instruction) -> Value:
    """The token, which only keeps the check alive."""
    operand, token = instruction.operands
    buffer, shape = context.buffer(operand), operand.array_shape
    check = ValueCheck.of(instruction)
    units = -(-shape.elements // GRAIN)
    if units:
        call, record = Address(context.call_block()), CheckRecord(units)
        work = ValueCheckWork(check, shape, instruction.op_name, call, Address(buffer), GRAIN, record)
        span = Span(buffer, Partition(1, shape.elements, GRAIN)) if units > 1 else Span(buffer)
        # A chip does not check: no work for the cost report.
        context.emit_for(instruction, work, units, [span], [], one_worker=units == 1)
        context.mark("leave", 0)
    return context.buffer(token)


@custom_call(VERTEX)
def lower_vertex(context: Context, instruction: Instruction) -> Value:
    """The results, of which each unit alone writes its slice."""
    vertex, shapes = VertexCall.of(instruction), arrays_of(instruction)
    slices, units, rows = vertex.slices(shapes), vertex.units(shapes), vertex.rows(shapes)
    alone = isinstance(instruction.shape, Shape)
    count = len(results_of(instruction))
    results = [context.result_buffer(instruction, None if alone else k) for k in range(count)]
    arrays = [*(context.buffer(operand) for operand in instruction.operands), *results]
    entries = (
        VertexSlice(Address(b), each.unit_elements * b.shape.dtype.itemsize, tuple(each.dimensions))
        for each, b in zip(slices, arrays, strict=True)
    )
    work = VertexCallWork(vertex.name, vertex.code, tuple(entries), rows, vertex.grain)
    spans = [_span(*pair, rows, units) for pair in zip(slices, arrays, strict=True)]
    reads, writes = spans[: -len(results)], spans[-len(results) :]
    largest = max(shape.elements for shape in shapes)
    cycles = None if vertex.cycles is None else VertexCycles(rows, vertex.grain, *vertex.cycles)
    estimate = WorkEstimate({f"vertex {vertex.name}": largest}, 0, shapes[-1].element_type, vertex=cycles)
    small = sum(shape.elements for shape in shapes) <= SMALL
    context.emit_for(instruction, work, units, reads, writes, estimate, suffix=f".{vertex.name}", one_worker=small)
    return results[0] if alone else tuple(results)


def _span(each: Slice, buffer: Buffer, rows: int, units: int) -> Span:
    """The part of an array that each unit touches."""
    if each.split == "whole" or not buffer.shape.elements:
        return Span(buffer)
    if each.split == "reduction":
        return Span(buffer, Partition(each.unit_elements, units, 1))
    return Span(buffer, Partition(prod(each.dimensions[1:]), rows, each.dimensions[0]))
