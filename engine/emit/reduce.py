"""Accumulators of reductions in LLVM IR: combining, and the sum across lanes."""

from __future__ import annotations

from engine.codelets.language.lanes import I32, Lanes, is_complex
from engine.emit.point import Point
from engine.emit.registry import emit_operation
from engine.machine_code.llvm import ir
from engine.program.nest import Body, Operation, Reduction


def combine(lanes: Lanes, reduction: Reduction, held: list[ir.Value], values: list[ir.Value]) -> list[ir.Value]:
    """Updates the accumulators with one value each."""
    if isinstance(reduction.combine, str):
        element_type = reduction.element_types[0]
        operation = Operation(reduction.combine, element_type, (element_type, element_type))
        return [emit_operation(lanes, operation, [held[0], values[0]])]
    return apply_body(lanes, reduction.combine, held + values)


def without_mask_registers(lanes: Lanes, value: ir.Value) -> ir.Value:
    """Packs lanes of pred into the bits of an integer: integers combine in one cycle, mask registers in four."""
    if lanes.width == 1 or value.type != lanes.type("pred"):
        return value
    return lanes.builder.bitcast(value, ir.IntType(lanes.width))


def as_lanes(lanes: Lanes, accumulator: ir.Value, element_type: str) -> ir.Value:
    """Unpacks an accumulator that `without_mask_registers` packed; returns others as they are."""
    is_wide = accumulator.type != lanes.type(element_type)
    return lanes.builder.bitcast(accumulator, lanes.type(element_type)) if is_wide else accumulator


def apply_body(lanes: Lanes, body: Body, arguments: list[ir.Value]) -> list[ir.Value]:
    """Applies a body to accumulators and values, and returns its results."""
    ready = {k: arguments[node.number] for k, node in enumerate(body.nodes) if hasattr(node, "number")}
    point = Point(lanes, body.nodes, (), [], [], None, ready)
    return [point.value(result) for result in body.results]


def halves(lanes: Lanes, vector: ir.Value, count: int) -> list[ir.Value]:
    """The first and the second half of a vector of `count` elements; a half of one element is a scalar."""
    half = count // 2
    parts = [lanes.shuffled(vector, vector, range(first, first + half)) for first in (0, half)]
    return [lanes.builder.extract_element(each, I32(0)) for each in parts] if half == 1 else parts


def across_lanes(lanes: Lanes, opcode: str, element_type: str, vector: ir.Value) -> ir.Value:
    """Combines all lanes into one scalar, always in the same tree order."""
    count = lanes.width
    operation = Operation(opcode, element_type, (element_type, element_type))
    floats = 2 if is_complex(element_type) else 1
    while count > 1:
        parts, count = halves(lanes, vector, count * floats), count // 2
        vector = emit_operation(Lanes(lanes.builder, count), operation, parts)
    return vector
