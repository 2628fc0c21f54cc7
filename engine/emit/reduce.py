"""Accumulators of reductions in LLVM IR: neutral elements, combining, and the sum across lanes."""

from __future__ import annotations

from llvmlite import ir

from engine.emit.lanes import I32, REGISTER_TYPES, Lanes, is_complex, is_float, is_signed
from engine.emit.nest import Body, Reduction
from engine.emit.point import Point
from engine.emit.registry import Operation, emit_operation


def neutral(lanes: Lanes, opcode: str, element_type: str) -> ir.Constant:
    """The value that changes nothing: -0 for a sum, since 0 + -0 would lose the sign."""
    if is_float(element_type):
        infinity = float("inf")
        values = {"add": -0.0, "multiply": 1.0, "maximum": -infinity, "minimum": infinity}
        return lanes.constant(element_type, values[opcode])
    if is_complex(element_type):
        return lanes.constant(element_type, {"add": complex(-0.0, -0.0), "multiply": complex(1.0)}[opcode])
    bits = REGISTER_TYPES[element_type].width
    signed = is_signed(element_type)
    highest, lowest = ((1 << (bits - 1)) - 1, -(1 << (bits - 1))) if signed else ((1 << bits) - 1, 0)
    values = {"add": 0, "or": 0, "xor": 0, "multiply": 1, "and": -1, "maximum": lowest, "minimum": highest}
    if element_type == "pred":
        values |= {"and": 1, "maximum": 0, "minimum": 1}
    return lanes.constant(element_type, values[opcode])


def combine(lanes: Lanes, reduction: Reduction, held: list[ir.Value], values: list[ir.Value]) -> list[ir.Value]:
    """The accumulators after one more value each."""
    if isinstance(reduction.combine, str):
        element_type = reduction.element_types[0]
        operation = Operation(reduction.combine, element_type, (element_type, element_type))
        return [emit_operation(lanes, operation, [held[0], values[0]])]
    return apply_body(lanes, reduction.combine, held + values)


def apply_body(lanes: Lanes, body: Body, arguments: list[ir.Value]) -> list[ir.Value]:
    """The results of a body for accumulators and values."""
    ready = {k: arguments[node.number] for k, node in enumerate(body.nodes) if hasattr(node, "number")}
    point = Point(lanes, body.nodes, (), [], [], None, ready)
    return [point.value(result) for result in body.results]


def across_lanes(lanes: Lanes, opcode: str, element_type: str, vector: ir.Value) -> ir.Value:
    """All lanes combined into one scalar, always in the same tree."""
    builder, count = lanes.builder, lanes.width
    operation = Operation(opcode, element_type, (element_type, element_type))
    floats = 2 if is_complex(element_type) else 1
    while count > 1:
        half = count // 2
        low, high = (
            lanes.shuffled(vector, vector, range(first * floats, (first + half) * floats)) for first in (0, half)
        )
        if half == 1 and floats == 1:
            zero = ir.Constant(I32, 0)
            low, high = (builder.extract_element(v, zero) for v in (low, high))
        vector = emit_operation(Lanes(builder, half), operation, [low, high])
        count = half
    return vector
