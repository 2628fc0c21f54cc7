"""Lowers vertices of the user's own: one compute set, a unit for each slice of rows."""

from __future__ import annotations

from math import prod

from engine.ir import Instruction, Shape
from engine.ir.vertices import Slice, VertexCall, arrays_of, results_of
from engine.lower.context import Context, Value
from engine.program.program import Address, Buffer, Partition, Span, VertexCycles, WorkEstimate
from engine.program.work.vertex_call import VertexCallWork, VertexSlice

SMALL = 1 << 14
"""Elements up to which one worker runs all units."""


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
