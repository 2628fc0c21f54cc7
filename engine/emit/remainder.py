"""The exact remainder of f32 lanes by f64 quotients; a huge quotient is computed in several steps."""

from __future__ import annotations

from engine.emit.lanes import F32, F64, Lanes
from engine.emit.loops import if_any
from engine.machine_code.llvm import ir

BITS = 48
"""Bits of a quotient computed at a time. The quotient of two f32 is below 2**277."""
ABOVE_ALL = 2.0**400


def remainder(lanes: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """x - trunc(x / y) y, with the sign of x; NaN for infinite x and for y = 0."""
    builder, wide = lanes.builder, lanes.of(F64)
    a, b = (lanes.intrinsic("fabs", builder.fpext(each, wide)) for each in (x, y))
    infinity = lanes.constant("f64", float("inf"))
    b = builder.select(builder.fcmp_ordered("==", b, infinity), lanes.constant("f64", ABOVE_ALL), b)
    huge = builder.fcmp_ordered(">=", a, builder.fmul(b, lanes.constant("f64", 2.0**BITS)))

    def reduced(held: list[ir.Value]) -> list[ir.Value]:
        (rest,) = held
        for bits in range(5 * BITS, 0, -BITS):
            rest = _step(lanes, rest, builder.fmul(b, lanes.constant("f64", 2.0**bits)))
        return [rest]

    (a,) = if_any(lanes, huge, [a], reduced)
    return lanes.intrinsic("copysign", builder.fptrunc(_step(lanes, a, b), lanes.of(F32)), x)


def _step(lanes: Lanes, a: ir.Value, b: ir.Value) -> ir.Value:
    """The remainder of a by b for a quotient below 2**48, corrected where the rounded quotient is one too large."""
    builder = lanes.builder
    whole = lanes.intrinsic("trunc", builder.fdiv(a, b))
    rest = lanes.intrinsic("fma", builder.fneg(whole), b, a)
    below = builder.fcmp_ordered("<", rest, lanes.constant("f64", 0.0))
    return builder.select(below, builder.fadd(rest, b), rest)
