"""exponential, log, tanh, power and similar in LLVM IR: polynomials up to f32, the C library for f64.

pow and cbrt of f32 lanes, within 2.5 ULP.

sin, cos, tan and atan2 of f32 lanes as polynomials, within 2.5 ULP for arguments of any size.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.codelets.language.lanes import F32, F64, I32, I64, REGISTER_TYPES, Lanes, is_float, is_signed
from engine.emit import estimates, polynomials
from engine.emit.estimates import constant, fused
from engine.emit.loops import if_any
from engine.emit.polynomials import (
    exponent_and_mantissa,
    horner,
    keep_tiny,
    limited,
    small_exponential,
    times_power_of_two,
)
from engine.emit.registry import emitter
from engine.machine_code.llvm import ir
from engine.program.nest import Operation

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


FUNCTIONS: dict[str, tuple[str, Callable[..., ir.Value]]] = {
    "exponential": ("exp", polynomials.exponential),
    "log": ("log", polynomials.logarithm),
    "tanh": ("tanh", polynomials.hyperbolic_tangent),
    "erf": ("erf", polynomials.error_function),
    "erfc": ("erfc", polynomials.complementary_error_function),
    "log-plus-one": ("log1p", polynomials.logarithm_plus_one),
    "exponential-minus-one": ("expm1", polynomials.exponential_minus_one),
    "sine": ("sin", sine),
    "cosine": ("cos", cosine),
    "tan": ("tan", tangent),
    "cbrt": ("cbrt", cube_root),
    "power": ("pow", power),
    "atan2": ("atan2", arctangent),
}
"""The C function for f64, and the polynomial for other floats."""
INTRINSICS = {
    "floor": "floor",
    "ceil": "ceil",
    "round-nearest-even": "roundeven",
    "round-nearest-afz": "round",
    "popcnt": "ctpop",
}


@emitter(*(opcode for opcode in FUNCTIONS if opcode != "power"))
def emit_function(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Emits a polynomial, or calls the C library for f64."""
    name, polynomial = FUNCTIONS[op.opcode]
    return lanes.each_lane(name, F64, operands) if op.element_type == "f64" else polynomial(lanes, *operands)


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
    if op.element_type != "f64" and lanes.width >= 8:
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


@emitter(*INTRINSICS)
def emit_intrinsic(lanes: Lanes, op: Operation, operands: list[ir.Value]) -> ir.Value:
    """Rounds to a whole number, where zeros keep their sign, or counts the one bits."""
    return lanes.intrinsic(INTRINSICS[op.opcode], operands[0])
