"""sin, cos, tan and atan2 of f32 lanes as polynomials, within 2.5 ULP for arguments of any size."""

from __future__ import annotations

from engine.emit.estimates import constant, fused
from engine.emit.lanes import F32, F64, I32, I64, Lanes
from engine.emit.loops import if_any
from engine.emit.polynomials import horner, keep_tiny
from engine.machine_code.llvm import ir

TWO_OVER_PI = 0x517CC1B727220A94FE13ABE8FA9A6EE06DB14ACC9E21C820FF2
"""2 / pi in units of 2**-203: f32 reach 2**128, have 24 bits, and come as near as 2**-30 to a multiple of pi / 2."""
DIGITS = tuple(float(TWO_OVER_PI >> 29 * k & (1 << 29) - 1) * 2.0 ** (29 * k - 203) for k in range(6, -1, -1))
"""Digits of 29 bits of 2 / pi: the product of an f32 with one is exact in f64."""
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
NEAREST_WHOLE = 1.5 * 2.0**52
"""Added to an f64 below 2**51, this leaves the nearest whole number in the last bits of the sum."""
FAR = 2.0**40
"""Magnitude from which on the rounding of the quotient by pi / 2 would count."""
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
TANGENT = (
    *(9.38540185543e-3, 3.11992232697e-3, 2.44301354525e-2, 5.34112807005e-2),
    *(1.33387994085e-1, 3.33331568548e-1),
)
ARCTANGENT = (
    *(-0.001793620520714822, 0.010914600997297639, -0.031177838082750223, 0.0579575868974084, -0.08403450006647595),
    *(0.1095218568900504, -0.1426424166839184, 0.19998548283601997, -0.333332990891167),
)
PI_HIGH, PI_LOW = 3.1415927410125732, -8.742277657347586e-08


def _quarters(lanes: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Reduces x to n pi / 2 + r, |r| <= pi / 4: the lowest bits of n as i32, r in f32, and the rounding error of r."""
    builder, wide = lanes.builder, lanes.of(F64)
    magic, one_quarter = lanes.constant("f64", NEAREST_WHOLE), lanes.constant("f64", TWO_OVER_PI * 2.0**-203)
    exact = builder.fpext(x, wide)
    marked = builder.fadd(builder.fmul(exact, one_quarter), magic)
    n = builder.fneg(builder.fsub(marked, magic))
    r = lanes.intrinsic("fma", n, lanes.constant("f64", HALF_PI_HIGH), exact)
    r = lanes.intrinsic("fma", n, lanes.constant("f64", HALF_PI_LOW), r)
    magnitude, far = lanes.intrinsic("fabs", x), constant(lanes, FAR)
    huge = builder.and_(
        builder.fcmp_ordered(">=", magnitude, far), builder.fcmp_ordered("<", magnitude, constant(lanes, float("inf")))
    )

    def from_all_digits(near: list[ir.Value]) -> list[ir.Value]:
        return [builder.select(huge, *both) for both in zip(_far_quarters(lanes, exact), near, strict=True)]

    marked, r = if_any(lanes, huge, [marked, r], from_all_digits)
    number = builder.trunc(builder.bitcast(marked, lanes.of(I64)), lanes.of(I32))
    high = builder.fptrunc(r, lanes.of(F32))
    return number, high, builder.fptrunc(builder.fsub(r, builder.fpext(high, wide)), lanes.of(F32))


def _far_quarters(lanes: Lanes, exact: ir.Value) -> list[ir.Value]:
    """Reduces huge numbers by Payne and Hanek: keeps each digit's product modulo 4."""
    builder = lanes.builder
    total = error = lanes.constant("f64", 0.0)
    for digit in DIGITS:
        product = builder.fmul(exact, lanes.constant("f64", digit))
        fours = lanes.intrinsic("rint", builder.fmul(product, lanes.constant("f64", 0.25)))
        rest = lanes.intrinsic("fma", fours, lanes.constant("f64", -4.0), product)
        added = builder.fadd(total, rest)
        part = builder.fsub(added, total)
        lost = builder.fadd(builder.fsub(total, builder.fsub(added, part)), builder.fsub(rest, part))
        total, error = added, builder.fadd(error, lost)
    magic = lanes.constant("f64", NEAREST_WHOLE)
    marked = builder.fadd(total, magic)
    rest = builder.fadd(builder.fsub(total, builder.fsub(marked, magic)), error)
    return [marked, builder.fmul(rest, lanes.constant("f64", HALF_PI_HIGH))]


def _bit(lanes: Lanes, number: ir.Value, bit: int) -> ir.Value:
    mask = lanes.splat_constant(I32, 1 << bit)
    return lanes.builder.icmp_unsigned("!=", lanes.builder.and_(number, mask), lanes.splat_constant(I32, 0))


def _sine_from(lanes: Lanes, number: ir.Value, r: ir.Value) -> ir.Value:
    """sin(n pi / 2 + r)."""
    builder, one = lanes.builder, constant(lanes, 1.0)
    z = builder.fmul(r, r)
    sine = fused(lanes, builder.fmul(z, r), horner(lanes, z, SINE), r)
    cosine = fused(lanes, z, constant(lanes, -0.5), one)
    cosine = fused(lanes, builder.fmul(z, z), horner(lanes, z, COSINE), cosine)
    value = builder.select(_bit(lanes, number, 0), cosine, sine)
    return builder.select(_bit(lanes, number, 1), builder.fneg(value), value)


def sine(lanes: Lanes, x: ir.Value) -> ir.Value:
    """sin x; x itself where that is tiny."""
    number, r, _ = _quarters(lanes, x)
    return keep_tiny(lanes, x, 2.0**-13, _sine_from(lanes, number, r))


def cosine(lanes: Lanes, x: ir.Value) -> ir.Value:
    """cos x, as the sine a quarter further."""
    number, r, _ = _quarters(lanes, x)
    return _sine_from(lanes, lanes.builder.add(number, lanes.splat_constant(I32, 1)), r)


def tangent(lanes: Lanes, x: ir.Value) -> ir.Value:
    """tan x: a polynomial, or -1 divided by it; x itself where that is tiny."""
    builder = lanes.builder
    number, r, rest = _quarters(lanes, x)
    z = builder.fmul(r, r)
    correction = fused(lanes, rest, z, rest)
    value = builder.fadd(r, fused(lanes, builder.fmul(z, r), horner(lanes, z, TANGENT), correction))
    value = builder.select(_bit(lanes, number, 0), builder.fdiv(constant(lanes, -1.0), value), value)
    return keep_tiny(lanes, x, 2.0**-13, value)


def arctangent(lanes: Lanes, y: ir.Value, x: ir.Value) -> ir.Value:
    """atan2(y, x), from -pi to pi: the arctangent of the smaller coordinate by the larger, from the nearer axis."""
    builder, zero, one = lanes.builder, constant(lanes, 0.0), constant(lanes, 1.0)
    a, b = (lanes.intrinsic("fabs", each) for each in (y, x))
    steep = builder.fcmp_ordered(">", a, b)
    small, large = builder.select(steep, b, a), builder.select(steep, a, b)
    # Also 0 / 0, which is 0 here, and infinity / infinity, which is 1.
    equal = builder.select(builder.fcmp_ordered("==", a, zero), zero, one)
    ratio = builder.select(builder.fcmp_ordered("==", a, b), equal, builder.fdiv(small, large))
    z = builder.fmul(ratio, ratio)
    angle = fused(lanes, builder.fmul(z, ratio), horner(lanes, z, ARCTANGENT), ratio)
    left = builder.icmp_signed("<", builder.bitcast(x, lanes.of(I32)), lanes.splat_constant(I32, 0))
    axis = builder.select(steep, constant(lanes, 0.5), builder.select(left, one, zero))
    angle = builder.select(builder.xor(steep, left), builder.fneg(angle), angle)
    angle = fused(lanes, axis, constant(lanes, PI_HIGH), fused(lanes, axis, constant(lanes, PI_LOW), angle))
    return lanes.intrinsic("copysign", angle, y)
