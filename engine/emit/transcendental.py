"""exponential, log, tanh, power and their like in LLVM IR: our polynomials for f32, the C library for the rest."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from engine.emit import polynomials
from engine.emit.lanes import REGISTER_TYPES, Lanes, is_float
from engine.emit.registry import Operation, emitter

C_NAMES = {
    "exponential": "exp",
    "log": "log",
    "tanh": "tanh",
    "erf": "erf",
    "log-plus-one": "log1p",
    "exponential-minus-one": "expm1",
    "sine": "sin",
    "cosine": "cos",
    "tan": "tan",
    "cbrt": "cbrt",
    "power": "pow",
    "atan2": "atan2",
}
POLYNOMIALS: dict[str, Callable[[Lanes, ir.Value], ir.Value]] = {
    "exponential": polynomials.exponential,
    "log": polynomials.logarithm,
    "tanh": polynomials.hyperbolic_tangent,
    "erf": polynomials.error_function,
}
ROUNDINGS = {"floor": "floor", "ceil": "ceil", "round-nearest-even": "roundeven", "round-nearest-afz": "round"}


@emitter("exponential", "log", "tanh", "erf")
def emit_common(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    if op.element_type == "f64":
        return emit_library(lanes, op, operands)
    return POLYNOMIALS[op.opcode](lanes, operands[0])


@emitter("log-plus-one", "exponential-minus-one", "sine", "cosine", "tan", "cbrt", "atan2")
def emit_library(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    suffix = "" if op.element_type == "f64" else "f"
    return lanes.each_lane(C_NAMES[op.opcode] + suffix, REGISTER_TYPES[op.element_type], operands)


@emitter("power")
def emit_power(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    if is_float(op.element_type):
        return emit_library(lanes, op, operands)
    return _integer_power(lanes, op, *operands)


def _integer_power(lanes: Lanes, op: Operation, base: ir.Value, exponent: ir.Value) -> ir.Value:
    """By squaring, all bits of the exponent; a negative exponent counts as its unsigned bits, as XLA does."""
    kind = REGISTER_TYPES[op.element_type]
    builder, one = lanes.builder, lanes.splat_constant(kind, 1)
    result = one
    for _ in range(kind.width):
        odd = builder.icmp_unsigned("!=", builder.and_(exponent, one), lanes.splat_constant(kind, 0))
        result = builder.select(odd, builder.mul(result, base), result)
        base, exponent = builder.mul(base, base), builder.lshr(exponent, one)
    return result


@emitter("sqrt")
def emit_square_root(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    return lanes.intrinsic("sqrt", operands[0])


@emitter("rsqrt")
def emit_reciprocal_square_root(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    return lanes.builder.fdiv(lanes.constant(op.element_type, 1), lanes.intrinsic("sqrt", operands[0]))


@emitter("logistic")
def emit_logistic(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    builder, one = lanes.builder, lanes.constant(op.element_type, 1)
    minus = builder.fneg(operands[0])
    if op.element_type == "f64":
        power = lanes.each_lane("exp", REGISTER_TYPES["f64"], [minus])
    else:
        power = polynomials.exponential(lanes, minus)
    return builder.fdiv(one, builder.fadd(one, power))


@emitter(*ROUNDINGS)
def emit_rounding(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    return lanes.intrinsic(ROUNDINGS[op.opcode], operands[0])


