"""exp, expm1, log, log1p, tanh, erf and erfc of f32 lanes as polynomials: 1 to 5 ULP, faster than any library call."""

from __future__ import annotations

from engine.codelets.language.lanes import I32, Lanes
from engine.emit.conversion import MANTISSA_BITS
from engine.emit.estimates import ALL, AS_THE_STATE_SAYS, constant, fused, quotient
from engine.machine_code.llvm import ir

EXPONENT_BIAS = 127
ONE, ROOT_OF_HALF = 0x3F800000, 0x3F3504F3
"""Bits of 1 and of the square root of 1 / 2."""
LOG2_E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4
MARK = 1.5 * 2.0**23
"""Added to a small number, this leaves the nearest whole number in the last bits of the sum."""
EXP = (1.3901284e-3, 8.363147e-3, 4.1666854e-2, 1.6666577e-1, 0.5, 1.0, 1.0)
"""e**r for |r| up to ln 2 / 2, with a relative error of 1e-8."""
EXP_HIGHEST, EXP_LOWEST, EXPM1_LOWEST = 88.72284, -87.33655, -25.0
"""Numbers above and below these have powers that are infinite, and zero or denormal."""
EXPM1 = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
TANH_ODD = (1.3355858335824565e-8, 2.061003569714923e-5, 3.495649949253974e-3, 0.1338107904426401, 1.0)
TANH_EVEN = (7.777074697295494e-7, 3.285733176204785e-4, 2.587722151102729e-2, 0.4671439473782259, 1.0)
TANH_BOUND = 11.0
"""tanh x = x * ODD(x * x) / EVEN(x * x) up to 9, with a relative error of 2e-8; from there to the bound above 1."""
ERF_ODD = (
    *(0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861),
    *(0.18520832239976145, 1.128379143519084),
)
ERF_EVEN = (
    *(-1.1791602954361697e-7, 0.000023547966471313185, 0.0010179625278914885, 0.014070470171167667),
    *(0.11098505178285362, 0.49746925110067538, 1.0),
)
ERF_ONE_ABOVE = 3.832506856900711848
ERFC = (
    *(-0.05909767374396324, 0.2847154140472412, -0.48749151825904846, 0.27840182185173035, -0.02685699239373207),
    *(0.20278511941432953, 0.2430788278579712, 0.28237876296043396, 0.28208622336387634),
)
"""exp(x * x) * erfc(x) = t * p(t) for t = 1 / (1 + x / 2), with a relative error of 5e-8."""
ERFC_ZERO_ABOVE = 11.0
LOGISTIC_LOWEST, LOGISTIC_HIGHEST = -86.0, 89.5
"""Bounds of -x, beyond which the result is 1 or 0."""


def horner(lanes: Lanes, x: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
    """The polynomial with these coefficients, highest power first."""
    value: ir.Value = constant(lanes, coefficients[0])
    for coefficient in coefficients[1:]:
        value = fused(lanes, value, x, constant(lanes, coefficient))
    return value


def limited(lanes: Lanes, x: ir.Value, low: float, high: float, element_type: str = "f32") -> ir.Value:
    """x clamped to two bounds; NaN stays NaN."""
    builder = lanes.builder
    lowest, highest = lanes.constant(element_type, low), lanes.constant(element_type, high)
    # With x as the last operand this is one instruction, which propagates NaN.
    x = builder.select(builder.fcmp_ordered("<", highest, x), highest, x)
    return builder.select(builder.fcmp_ordered(">", lowest, x), lowest, x)


def keep_tiny(lanes: Lanes, x: ir.Value, below: float, result: ir.Value) -> ir.Value:
    """The result, or x where x is NaN or smaller in magnitude than a bound."""
    tiny = lanes.builder.fcmp_unordered("<", lanes.intrinsic("fabs", x), constant(lanes, below))
    return lanes.builder.select(tiny, x, result)


def times_power_of_two(lanes: Lanes, y: ir.Value, n: ir.Value) -> ir.Value:
    """y * 2**n for whole n, by one AVX-512 instruction; elsewhere by two factors, so that denormals are correct."""
    if lanes.width == 16:
        return _scaled(lanes, y, n)
    builder = lanes.builder
    whole = builder.fptosi(n, lanes.of(I32))
    half = builder.ashr(whole, lanes.splat_constant(I32, 1))
    y = builder.fmul(y, _power_of_two(lanes, half))
    return builder.fmul(y, _power_of_two(lanes, builder.sub(whole, half)))


def _scaled(lanes: Lanes, y: ir.Value, n: ir.Value) -> ir.Value:
    """y * 2**n by one instruction of AVX-512."""
    return lanes.call("llvm.x86.avx512.mask.scalef.ps.512", y.type, [y, n, y, ALL, AS_THE_STATE_SAYS])


def _power_of_two(lanes: Lanes, exponent: ir.Value) -> ir.Value:
    """2**exponent for i32 exponents from -126 to 127."""
    return _from_exponent(lanes, lanes.builder.add(exponent, lanes.splat_constant(I32, EXPONENT_BIAS)))


def _from_exponent(lanes: Lanes, biased: ir.Value) -> ir.Value:
    """The power of two whose exponent, with its bias, is in the last bits of an i32."""
    bits = lanes.builder.shl(biased, lanes.splat_constant(I32, MANTISSA_BITS["f32"]))
    return lanes.builder.bitcast(bits, lanes.type("f32"))


def exponential(lanes: Lanes, x: ir.Value) -> ir.Value:
    """e**x as a polynomial in r times 2**n, where x = n ln 2 + r; 0 for a denormal result."""
    builder = lanes.builder
    if lanes.width == 16:
        _, n, r = _reduced(lanes, limited(lanes, x, 2 * EXP_LOWEST, 2 * EXP_HIGHEST))
        return _scaled(lanes, horner(lanes, r, EXP), n)
    # n is added to the exponent: no factor has the exponents of all results.
    marked, _, r = _reduced(lanes, x)
    n = builder.shl(builder.bitcast(marked, lanes.of(I32)), lanes.splat_constant(I32, MANTISSA_BITS["f32"]))
    bits = builder.add(builder.bitcast(horner(lanes, r, EXP), lanes.of(I32)), n)
    above = builder.fcmp_unordered(">", x, constant(lanes, EXP_HIGHEST))
    infinity_or_nan = builder.fadd(x, constant(lanes, float("inf")))
    result = builder.select(above, infinity_or_nan, builder.bitcast(bits, lanes.type("f32")))
    below = builder.fcmp_ordered("<", x, constant(lanes, EXP_LOWEST))
    return builder.select(below, constant(lanes, 0.0), result)


def exponential_minus_one(lanes: Lanes, x: ir.Value) -> ir.Value:
    """e**x - 1 as twice (2**(n - 1) p + 2**(n - 1) - 1 / 2), which does not overflow too early; x itself if tiny."""
    builder = lanes.builder
    marked, _, r = _reduced(lanes, limited(lanes, x, EXPM1_LOWEST, EXP_HIGHEST), EXPONENT_BIAS - 1)
    half = _from_exponent(lanes, builder.bitcast(marked, lanes.of(I32)))
    y = fused(lanes, small_exponential(lanes, r), half, builder.fsub(half, constant(lanes, 0.5)))
    return keep_tiny(lanes, x, 2.0**-25, builder.fadd(y, y))


def _reduced(lanes: Lanes, x: ir.Value, bias: int = 0) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Reduces x to n ln 2 + r: a number with n + bias in its last bits, n, and r."""
    mark = constant(lanes, MARK + bias)
    marked = fused(lanes, x, constant(lanes, LOG2_E), mark)
    n = lanes.builder.fsub(marked, mark)
    r = fused(lanes, n, constant(lanes, -LN2_HIGH), x)
    return marked, n, fused(lanes, n, constant(lanes, -LN2_LOW), r)


def small_exponential(lanes: Lanes, r: ir.Value) -> ir.Value:
    """e**r - 1 for |r| up to ln 2 / 2."""
    return fused(lanes, horner(lanes, r, EXPM1), lanes.builder.fmul(r, r), r)


def logarithm(lanes: Lanes, x: ir.Value) -> ir.Value:
    """ln x: the exponent times ln 2 plus a polynomial in the mantissa around 1."""
    return _logarithm_from(lanes, x, *exponent_and_mantissa(lanes, x))


def logarithm_plus_one(lanes: Lanes, x: ir.Value) -> ir.Value:
    """ln(1 + x); the mantissa, as a distance from 1, has bits left for the rounding error of 1 + x, which is added."""
    builder, one = lanes.builder, constant(lanes, 1.0)
    raised = builder.fadd(one, x)
    part = builder.fsub(raised, one)
    lost = builder.fadd(builder.fsub(one, builder.fsub(raised, part)), builder.fsub(x, part))
    e, m, power = _exponent_and_mantissa(lanes, raised)
    # 2**-e, and 0 from 2**127 on, where the lost bits do not count.
    inverse = builder.sub(lanes.splat_constant(I32, ONE), power)
    zero = lanes.splat_constant(I32, 0)
    inverse = builder.select(builder.icmp_signed(">", inverse, zero), inverse, zero)
    m = fused(lanes, lost, builder.bitcast(inverse, x.type), m)
    return keep_tiny(lanes, x, 2.0**-25, _logarithm_from(lanes, raised, e, m))


def exponent_and_mantissa(lanes: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Returns a whole number e and m such that x = 2**e (1 + m), with 1 + m between sqrt(1 / 2) and sqrt(2)."""
    builder = lanes.builder
    tiny = builder.fcmp_ordered("<", x, constant(lanes, 1.17549435e-38))
    scaled = builder.select(tiny, builder.fmul(x, constant(lanes, 8388608.0)), x)
    e, m, _ = _exponent_and_mantissa(lanes, scaled)
    return builder.fsub(e, builder.select(tiny, constant(lanes, 23.0), constant(lanes, 0.0))), m


def _exponent_and_mantissa(lanes: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Returns e and m of an x that is no denormal number, and e where the bits of a number have its exponent."""
    builder, exponent = lanes.builder, -1 << MANTISSA_BITS["f32"]
    bits = builder.bitcast(x, lanes.of(I32))
    power = builder.and_(
        builder.sub(bits, lanes.splat_constant(I32, ROOT_OF_HALF)), lanes.splat_constant(I32, exponent)
    )
    m = builder.fsub(builder.bitcast(builder.sub(bits, power), x.type), constant(lanes, 1.0))
    whole = builder.ashr(power, lanes.splat_constant(I32, MANTISSA_BITS["f32"]))
    return builder.sitofp(whole, x.type), m, power


def _logarithm_from(lanes: Lanes, x: ir.Value, e: ir.Value, m: ir.Value) -> ir.Value:
    """Computes e ln 2 + ln(1 + m), or the right result for an x that is zero, negative, infinite or NaN."""
    builder, zero = lanes.builder, constant(lanes, 0.0)
    z = builder.fmul(m, m)
    y = builder.fmul(builder.fmul(horner(lanes, m, LOG), m), z)
    y = fused(lanes, e, constant(lanes, LN2_LOW), y)
    y = fused(lanes, constant(lanes, -0.5), z, y)
    result = fused(lanes, e, constant(lanes, LN2_HIGH), builder.fadd(m, y))
    result = builder.select(builder.fcmp_ordered("<", x, constant(lanes, float("inf"))), result, x)
    result = builder.select(builder.fcmp_ordered("==", x, zero), constant(lanes, float("-inf")), result)
    return builder.select(builder.fcmp_ordered("<", x, zero), constant(lanes, float("nan")), result)


def hyperbolic_tangent(lanes: Lanes, x: ir.Value) -> ir.Value:
    """tanh x as a rational function, or 1 where that is larger."""
    inside = limited(lanes, x, -TANH_BOUND, TANH_BOUND)
    z = lanes.builder.fmul(inside, inside)
    p = lanes.builder.fmul(horner(lanes, z, TANH_ODD), inside)
    return limited(lanes, quotient(lanes, p, horner(lanes, z, TANH_EVEN)), -1.0, 1.0)


def error_function(lanes: Lanes, x: ir.Value) -> ir.Value:
    """erf x as a rational function on [-3.83, 3.83]."""
    inside = limited(lanes, x, -ERF_ONE_ABOVE, ERF_ONE_ABOVE)
    z = lanes.builder.fmul(inside, inside)
    p = lanes.builder.fmul(horner(lanes, z, ERF_ODD), inside)
    return quotient(lanes, p, horner(lanes, z, ERF_EVEN))


def complementary_error_function(lanes: Lanes, x: ir.Value) -> ir.Value:
    """e**(-x * x) times a polynomial in 1 / (1 + |x| / 2), relative error 1e-6; for negative x two minus that."""
    builder, one = lanes.builder, constant(lanes, 1.0)
    magnitude, highest = lanes.intrinsic("fabs", x), constant(lanes, ERFC_ZERO_ABOVE)
    a = builder.select(builder.fcmp_ordered("<", highest, magnitude), highest, magnitude)
    t = quotient(lanes, one, fused(lanes, a, constant(lanes, 0.5), one))
    p = builder.fmul(horner(lanes, t, ERFC), t)
    # The rounding error of the square matters where the square is large.
    rest = fused(lanes, builder.fneg(a), a, builder.fmul(a, a))
    power = exponential(lanes, builder.fneg(builder.fmul(x, x)))  # which a derivative of erfc has, too
    result = builder.fmul(power, fused(lanes, p, rest, p))
    negative = builder.fcmp_ordered("<", x, constant(lanes, 0.0))
    return builder.select(negative, builder.fsub(constant(lanes, 2.0), result), result)


def logistic(lanes: Lanes, x: ir.Value) -> ir.Value:
    """1 / (1 + e**-x); 0 where the quotient is a denormal number."""
    builder, one = lanes.builder, constant(lanes, 1.0)
    if lanes.width != 16:
        # Half of dividend and divisor, so that e**-x becomes infinite where it overflows.
        y, half = limited(lanes, builder.fneg(x), LOGISTIC_LOWEST, LOGISTIC_HIGHEST), constant(lanes, 0.5)
        marked, _, r = _reduced(lanes, y, EXPONENT_BIAS - 1)
        power = _from_exponent(lanes, builder.bitcast(marked, lanes.of(I32)))
        return builder.fdiv(half, fused(lanes, horner(lanes, r, EXP), power, half))
    divisor = builder.fadd(one, exponential(lanes, builder.fneg(x)))
    beyond = builder.fcmp_ordered(">", divisor, constant(lanes, 2.0**126))
    return builder.select(beyond, constant(lanes, 0.0), quotient(lanes, one, divisor))
