"""stochastic-convert, its random bits, and overflow modes of 16-bit floats, in LLVM IR (see engine/ops/rounding)."""

from __future__ import annotations

from engine.codelets.language.lanes import F32, I32, Lanes
from engine.emit.registry import emitter
from engine.ir.floating_point import (
    EXPONENT,
    INDEX_MIXING,
    KEY_MIXING,
    LARGEST_HALF,
    LAST_FACTOR,
    LEAST_EXPONENT,
    RECIPROCAL,
    STEP,
    UNUSED_BITS,
)
from engine.machine_code.llvm import ir
from engine.program.nest import Operation

ONE = 127 << 23
"""The bits of 1.0; the 23 bits of the mantissa follow them."""
FIRST_OVERFLOW = 65520.0
"""The least f32 that overflows f16 when rounded to nearest even."""


@emitter("random-bits")
def emit_random_bits(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Hashes an element's number and a key; LLVM hashes the number once for all keys."""
    index, key = operands
    bits = _mixed(lanes, _mixed(lanes, index, INDEX_MIXING, None), KEY_MIXING, key)
    return lanes.builder.mul(bits, lanes.splat_constant(I32, LAST_FACTOR))


def _mixed(lanes: Lanes, bits: ir.Value, mixing: tuple[int, int], key: ir.Value | None) -> ir.Value:
    builder, (factor, shift) = lanes.builder, mixing
    bits = builder.mul(bits if key is None else builder.xor(bits, key), lanes.splat_constant(I32, factor))
    return builder.xor(bits, builder.lshr(bits, lanes.splat_constant(I32, shift)))


@emitter("stochastic-convert")
def emit_stochastic_convert(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Rounds f32 to f16: up if the fraction, in units of f16's spacing, exceeds a random threshold."""
    x, bits = operands
    builder = lanes.builder

    def integer(value: int) -> ir.Constant:
        return lanes.splat_constant(I32, value)

    magnitude = lanes.intrinsic("fabs", x)
    exponent = builder.and_(builder.bitcast(magnitude, lanes.of(I32)), integer(EXPONENT))
    normal = builder.icmp_unsigned(">", exponent, integer(LEAST_EXPONENT))
    distance = builder.sub(builder.select(normal, exponent, integer(LEAST_EXPONENT)), integer(STEP))
    scale = builder.bitcast(builder.sub(integer(RECIPROCAL), distance), lanes.of(F32))
    steps = builder.fmul(magnitude, scale)
    below = lanes.intrinsic("floor", steps)
    from_one_to_two = builder.or_(builder.lshr(bits, integer(UNUSED_BITS)), integer(ONE))
    threshold = builder.fsub(builder.bitcast(from_one_to_two, lanes.of(F32)), lanes.constant("f32", 1 - 2.0**-24))
    up = builder.fcmp_ordered(">", builder.fsub(steps, below), threshold)
    above = builder.fadd(below, lanes.constant("f32", 1.0))
    rounded = builder.fmul(builder.select(up, above, below), builder.bitcast(distance, lanes.of(F32)))
    beyond = builder.fcmp_ordered(">", rounded, lanes.constant("f32", LARGEST_HALF))
    rounded = _overflowed(lanes, magnitude, rounded, beyond, str(op["overflow"]))
    return lanes.intrinsic("copysign", rounded, x)


def limited(lanes: Lanes, x: ir.Value, element_type: str, overflow: str) -> ir.Value:
    """Replaces floats that would overflow in f16 as `overflow` says."""
    magnitude = lanes.intrinsic("fabs", x)
    beyond = lanes.builder.fcmp_ordered(">=", magnitude, lanes.constant(element_type, FIRST_OVERFLOW))
    kept = _overflowed(lanes, magnitude, magnitude, beyond, overflow, element_type)
    return lanes.intrinsic("copysign", kept, x)


def _overflowed(
    lanes: Lanes, magnitude: ir.Value, kept: ir.Value, beyond: ir.Value, overflow: str, element_type: str = "f32"
) -> ir.Value:
    """`kept`, or the replacement of finite numbers beyond the range of f16."""
    if overflow == "infinity":
        return kept
    builder = lanes.builder
    finite = builder.fcmp_ordered("<", magnitude, lanes.constant(element_type, float("inf")))
    stand_in = lanes.constant(element_type, float("nan") if overflow == "nan" else LARGEST_HALF)
    return builder.select(builder.and_(beyond, finite), stand_in, kept)
