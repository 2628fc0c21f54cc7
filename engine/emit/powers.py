"""pow and cbrt of f32 lanes, within 2.5 ULP."""

from __future__ import annotations

from engine.emit.estimates import constant, fused
from engine.emit.lanes import F32, F64, I32, Lanes
from engine.emit.polynomials import exponent_and_mantissa, limited, small_exponential, times_power_of_two
from engine.machine_code.llvm import ir

LOG2 = (0.3407727409506262, 0.4116705198330758, 0.577083619692688, 0.9617966731711876, 2.8853900817902116)
"""log2((1 + s) / (1 - s)) = s * p(s * s), in f64, because a power multiplies the error."""
LN2 = 0.6931471805599453
POWER_LOWEST, POWER_HIGHEST = -152.0, 130.0
INVERSE_CUBE_ROOT = 0x54A21D2A
"""Minuend of a first estimate: minus a third of an f32's bits, it gives the bits of the inverse cube root."""
SMALLEST_NORMAL = 2.0**-126


def power(lanes: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
    """x**y as 2**(y log2 |x|), the exponent in f64, by the rules of IEEE 754's pow."""
    builder, wide = lanes.builder, lanes.of(F64)
    zero, one, infinity = (constant(lanes, value) for value in (0.0, 1.0, float("inf")))
    magnitude = lanes.intrinsic("fabs", x)
    exponent = builder.fmul(builder.fpext(y, wide), _binary_logarithm(lanes, magnitude))
    # 1**y and x**0 are 1, also for infinities and NaN.
    flat = builder.or_(builder.fcmp_ordered("==", magnitude, one), builder.fcmp_ordered("==", y, zero))
    exponent = builder.select(flat, lanes.constant("f64", 0.0), exponent)
    exponent = limited(lanes, exponent, POWER_LOWEST, POWER_HIGHEST, "f64")
    n = lanes.intrinsic("rint", exponent)
    r = builder.fptrunc(builder.fmul(builder.fsub(exponent, n), lanes.constant("f64", LN2)), lanes.of(F32))
    p = small_exponential(lanes, r)
    result = times_power_of_two(lanes, builder.fadd(p, one), builder.fptrunc(n, lanes.of(F32)))
    whole = builder.fcmp_ordered("==", lanes.intrinsic("floor", y), y)
    half = builder.fmul(y, constant(lanes, 0.5))
    even = builder.fcmp_ordered("==", lanes.intrinsic("floor", half), half)
    odd = builder.and_(whole, builder.not_(even))
    result = builder.select(odd, lanes.intrinsic("copysign", result, x), result)
    negative = builder.and_(builder.fcmp_ordered("<", x, zero), builder.fcmp_ordered("<", magnitude, infinity))
    undefined = builder.and_(negative, builder.not_(whole))
    return builder.select(undefined, constant(lanes, float("nan")), result)


def _binary_logarithm(lanes: Lanes, x: ir.Value) -> ir.Value:
    """log2 of x >= 0 in f64, with a relative error of 2**-37."""
    builder, wide = lanes.builder, lanes.of(F64)
    e, m = exponent_and_mantissa(lanes, x)
    # s = m / (2 + m): the quotient in f32, and a step with its remainder in f64.
    inverse = builder.fdiv(constant(lanes, 1.0), builder.fadd(m, constant(lanes, 2.0)))
    first, inverse, m = (builder.fpext(each, wide) for each in (builder.fmul(m, inverse), inverse, m))
    divisor = builder.fadd(m, lanes.constant("f64", 2.0))
    remainder = lanes.intrinsic("fma", builder.fneg(first), divisor, m)
    s = lanes.intrinsic("fma", remainder, inverse, first)
    z, p = builder.fmul(s, s), lanes.constant("f64", LOG2[0])
    for coefficient in LOG2[1:]:
        p = lanes.intrinsic("fma", p, z, lanes.constant("f64", coefficient))
    result = lanes.intrinsic("fma", s, p, builder.fpext(e, wide))
    zero = builder.fcmp_ordered("==", x, constant(lanes, 0.0))
    result = builder.select(zero, lanes.constant("f64", float("-inf")), result)
    finite = builder.fcmp_ordered("<", x, constant(lanes, float("inf")))
    return builder.select(finite, result, builder.fpext(x, wide))


def cube_root(lanes: Lanes, x: ir.Value) -> ir.Value:
    """x times the square of its inverse cube root y, found in two steps of third order; then a Newton step."""
    builder = lanes.builder
    magnitude = lanes.intrinsic("fabs", x)
    denormal = builder.fcmp_ordered("<", magnitude, constant(lanes, SMALLEST_NORMAL))
    one = constant(lanes, 1.0)
    a = builder.fmul(magnitude, builder.select(denormal, constant(lanes, 2.0**24), one))
    third = builder.fmul(builder.sitofp(builder.bitcast(a, lanes.of(I32)), lanes.of(F32)), constant(lanes, 1 / 3))
    bits = builder.sub(lanes.splat_constant(I32, INVERSE_CUBE_ROOT), builder.fptosi(third, lanes.of(I32)))
    y = builder.bitcast(bits, lanes.of(F32))
    for _ in range(2):
        h = fused(lanes, builder.fneg(builder.fmul(a, y)), builder.fmul(y, y), one)
        step = builder.fmul(h, fused(lanes, h, constant(lanes, 2 / 9), constant(lanes, 1 / 3)))
        y = fused(lanes, y, step, y)
    square = builder.fmul(y, y)
    c = builder.fmul(a, square)
    c2 = builder.fmul(c, c)
    low = fused(lanes, c, c, builder.fneg(c2))
    rest = fused(lanes, builder.fneg(low), c, fused(lanes, builder.fneg(c2), c, a))
    c = fused(lanes, rest, builder.fmul(square, constant(lanes, 1 / 3)), c)
    c = builder.fmul(c, builder.select(denormal, constant(lanes, 2.0**-8), one))
    c = lanes.intrinsic("copysign", c, x)
    ordinary = builder.and_(
        builder.fcmp_ordered("<", magnitude, constant(lanes, float("inf"))),
        builder.fcmp_ordered("!=", x, constant(lanes, 0.0)),
    )
    return builder.select(ordinary, c, x)
