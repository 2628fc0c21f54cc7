"""exponential, log, tanh, power and similar in LLVM IR: polynomials up to f32, the C library for f64."""

from __future__ import annotations

from collections.abc import Callable

from engine.emit import estimates, polynomials, powers, trigonometry
from engine.emit.lanes import REGISTER_TYPES, Lanes, is_float, is_signed
from engine.emit.registry import emitter
from engine.machine_code.llvm import ir
from engine.program.nest import Operation

C_NAMES = {
    "exponential": "exp",
    "log": "log",
    "tanh": "tanh",
    "erf": "erf",
    "erfc": "erfc",
    "log-plus-one": "log1p",
    "exponential-minus-one": "expm1",
    "sine": "sin",
    "cosine": "cos",
    "tan": "tan",
    "cbrt": "cbrt",
    "power": "pow",
    "atan2": "atan2",
}
POLYNOMIALS: dict[str, Callable[..., ir.Value]] = {
    "exponential": polynomials.exponential,
    "log": polynomials.logarithm,
    "tanh": polynomials.hyperbolic_tangent,
    "erf": polynomials.error_function,
    "erfc": polynomials.complementary_error_function,
    "log-plus-one": polynomials.logarithm_plus_one,
    "exponential-minus-one": polynomials.exponential_minus_one,
    "sine": trigonometry.sine,
    "cosine": trigonometry.cosine,
    "tan": trigonometry.tangent,
    "cbrt": powers.cube_root,
    "power": powers.power,
    "atan2": trigonometry.arctangent,
}
ROUNDINGS = {
    "floor": "floor",
    "ceil": "ceil",
    "round-nearest-even": "roundeven",
    "round-nearest-afz": "round",
}


@emitter(*(opcode for opcode in C_NAMES if opcode != "power"))
def emit_function(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Emits a polynomial, or calls the C library for f64 and where there is no polynomial."""
    if op.opcode in POLYNOMIALS and op.element_type != "f64":
        return POLYNOMIALS[op.opcode](lanes, *operands)
    suffix = "" if op.element_type == "f64" else "f"
    return lanes.each_lane(C_NAMES[op.opcode] + suffix, REGISTER_TYPES[op.element_type], operands)


@emitter("power")
def emit_power(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """pow of floats; integer powers by repeated squaring."""
    if is_float(op.element_type):
        return emit_function(lanes, op, operands)
    return _integer_power(lanes, op, *operands)


def _integer_power(lanes: Lanes, op: Operation, base: ir.Value, exponent: ir.Value) -> ir.Value:
    """Raises to an integer power by squaring, over all bits; a negative one truncates, and gives 0 for base 0."""
    kind = REGISTER_TYPES[op.element_type]
    builder = lanes.builder
    zero, one, minus_one = (lanes.splat_constant(kind, v) for v in (0, 1, -1))
    result, square, rest = one, base, exponent
    for _ in range(kind.width):
        odd = builder.icmp_unsigned("!=", builder.and_(rest, one), zero)
        result = builder.select(odd, builder.mul(result, square), result)
        square, rest = builder.mul(square, square), builder.lshr(rest, one)
    if not is_signed(op.element_type):
        return result
    # Powers of 1 and -1 are correct for any exponent, as only its parity matters.
    unit = builder.or_(builder.icmp_signed("==", base, one), builder.icmp_signed("==", base, minus_one))
    exact = builder.or_(builder.icmp_signed(">=", exponent, zero), unit)
    return builder.select(exact, result, zero)


@emitter("sqrt")
def emit_square_root(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """The correctly rounded square root, or an estimate where the operation allows it."""
    if op.is_estimated:
        return estimates.square_root(lanes, operands[0])
    return lanes.intrinsic("sqrt", operands[0])


@emitter("rsqrt")
def emit_reciprocal_square_root(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """1 / sqrt(x): infinity for 0, NaN for negative numbers."""
    if op.element_type != "f64" and lanes.width == 16:
        return estimates.reciprocal_square_root(lanes, operands[0])
    return lanes.builder.fdiv(lanes.constant(op.element_type, 1), lanes.intrinsic("sqrt", operands[0]))


@emitter("logistic")
def emit_logistic(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """1 / (1 + exp(-x))."""
    builder, one = lanes.builder, lanes.constant(op.element_type, 1)
    if op.element_type != "f64":
        return polynomials.logistic(lanes, operands[0])
    power = lanes.each_lane("exp", REGISTER_TYPES["f64"], [builder.fneg(operands[0])])
    return builder.fdiv(one, builder.fadd(one, power))


@emitter(*ROUNDINGS)
def emit_rounding(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Rounds to a whole number; zeros keep their sign."""
    return lanes.intrinsic(ROUNDINGS[op.opcode], operands[0])
