"""exp, expm1, log, log1p, tanh, erf and erfc of f32 lanes as polynomials: 1 to 5 ULP, faster than any library call."""

from __future__ import annotations

from engine.emit.estimates import ALL, AS_THE_STATE_SAYS, constant, fused, quotient
from engine.emit.lanes import I32, Lanes
from engine.machine_code.llvm import ir

LOG2_E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
EXP_HIGHEST, EXP_LOWEST, EXPM1_LOWEST = 89.0, -104.0, -25.0
LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
TANH_ODD = (
    *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
    *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
)
TANH_EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
TANH_LINEAR_BELOW, TANH_ONE_ABOVE = 0.0004, 9.0
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
GAUSSIAN = (1.3901284e-3, 8.363147e-3, 4.1666854e-2, 1.6666577e-1, 0.5, 1.0, 1.0)
"""e**r for |r| up to ln 2 / 2, with a relative error of 1e-8."""
GAUSSIAN_ZERO_ABOVE = 11.0


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


def keep_nan(lanes: Lanes, x: ir.Value, result: ir.Value) -> ir.Value:
    """The result, or x where x is NaN."""
    return lanes.builder.select(lanes.builder.fcmp_unordered("uno", x, x), x, result)


def keep_tiny(lanes: Lanes, x: ir.Value, below: float, result: ir.Value) -> ir.Value:
    """The result, or x where x is NaN or smaller in magnitude than a bound."""
    tiny = lanes.builder.fcmp_unordered("<", lanes.intrinsic("fabs", x), constant(lanes, below))
    return lanes.builder.select(tiny, x, result)


def power_of_two(lanes: Lanes, exponent: ir.Value) -> ir.Value:
    """2**exponent for i32 exponents from -126 to 127."""
    bits = lanes.builder.shl(lanes.builder.add(exponent, lanes.splat_constant(I32, 127)), lanes.splat_constant(I32, 23))
    return lanes.builder.bitcast(bits, lanes.type("f32"))


def times_power_of_two(lanes: Lanes, y: ir.Value, n: ir.Value) -> ir.Value:
    """y * 2**n for whole n, by one AVX-512 instruction; elsewhere by two factors, so that denormals are correct."""
    if lanes.width == 16:
        arguments = [y, n, y, ALL, AS_THE_STATE_SAYS]
        return lanes.call("llvm.x86.avx512.mask.scalef.ps.512", y.type, arguments)
    builder = lanes.builder
    whole = builder.fptosi(n, lanes.of(I32))
    half = builder.ashr(whole, lanes.splat_constant(I32, 1))
    y = builder.fmul(y, power_of_two(lanes, half))
    return builder.fmul(y, power_of_two(lanes, builder.sub(whole, half)))


def exponential(lanes: Lanes, x: ir.Value) -> ir.Value:
    """e**x as a polynomial in r times 2**n, where x = n ln 2 + r; 0 or infinity beyond the bounds."""
    n, p = _reduced_exponential(lanes, limited(lanes, x, EXP_LOWEST, EXP_HIGHEST))
    return times_power_of_two(lanes, lanes.builder.fadd(p, constant(lanes, 1.0)), n)


def exponential_minus_one(lanes: Lanes, x: ir.Value) -> ir.Value:
    """e**x - 1 as twice (2**(n - 1) p + 2**(n - 1) - 1 / 2), which does not overflow too early; x itself if tiny."""
    builder, one = lanes.builder, constant(lanes, 1.0)
    n, p = _reduced_exponential(lanes, limited(lanes, x, EXPM1_LOWEST, EXP_HIGHEST))
    half = power_of_two(lanes, builder.fptosi(builder.fsub(n, one), lanes.of(I32)))
    y = fused(lanes, p, half, builder.fsub(half, constant(lanes, 0.5)))
    return keep_tiny(lanes, x, 2.0**-25, builder.fadd(y, y))


def _reduced_exponential(lanes: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Returns n and p such that e**x = 2**n (1 + p)."""
    n = lanes.intrinsic("rint", lanes.builder.fmul(x, constant(lanes, LOG2_E)))
    r = fused(lanes, n, constant(lanes, -LN2_HIGH), x)
    r = fused(lanes, n, constant(lanes, -LN2_LOW), r)
    return n, small_exponential(lanes, r)


def small_exponential(lanes: Lanes, r: ir.Value) -> ir.Value:
    """e**r - 1 for |r| up to ln 2 / 2."""
    return fused(lanes, horner(lanes, r, EXP), lanes.builder.fmul(r, r), r)


def logarithm(lanes: Lanes, x: ir.Value) -> ir.Value:
    """ln x: the exponent times ln 2 plus a polynomial in the mantissa around 1."""
    return _logarithm_from(lanes, x, *exponent_and_mantissa(lanes, x))


def logarithm_plus_one(lanes: Lanes, x: ir.Value) -> ir.Value:
    """ln(1 + x); the mantissa, as a distance from 1, has bits left for the rounding error of 1 + x, which is added."""
    builder, one = lanes.builder, constant(lanes, 1.0)
    raised = builder.fadd(one, x)
    part = builder.fsub(raised, one)
    lost = builder.fadd(builder.fsub(one, builder.fsub(raised, part)), builder.fsub(x, part))
    e, m = exponent_and_mantissa(lanes, raised)
    # Above 2**64 the lost bits do not count.
    down = builder.fneg(limited(lanes, e, -64.0, 64.0))
    m = builder.fadd(m, times_power_of_two(lanes, lost, down))
    return keep_tiny(lanes, x, 2.0**-25, _logarithm_from(lanes, raised, e, m))


def exponent_and_mantissa(lanes: Lanes, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Returns a whole number e and m such that x = 2**e (1 + m), with 1 + m between sqrt(1 / 2) and sqrt(2)."""
    builder, integer = lanes.builder, lanes.of(I32)
    tiny = builder.fcmp_ordered("<", x, constant(lanes, 1.17549435e-38))
    scaled = builder.select(tiny, builder.fmul(x, constant(lanes, 8388608.0)), x)
    bits = builder.bitcast(scaled, integer)
    exponent = builder.sub(builder.lshr(bits, lanes.splat_constant(I32, 23)), lanes.splat_constant(I32, 126))
    exponent = builder.sub(exponent, builder.select(tiny, lanes.splat_constant(I32, 23), lanes.splat_constant(I32, 0)))
    fraction = builder.or_(
        builder.and_(bits, lanes.splat_constant(I32, 0x7FFFFF)), lanes.splat_constant(I32, 0x3F000000)
    )
    m = builder.bitcast(fraction, lanes.type("f32"))
    low = builder.fcmp_ordered("<", m, constant(lanes, 0.70710678118654752440))
    zero, one = constant(lanes, 0.0), constant(lanes, 1.0)
    e = builder.fsub(builder.sitofp(exponent, lanes.type("f32")), builder.select(low, one, zero))
    return e, builder.fadd(builder.fsub(m, one), builder.select(low, m, zero))


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
    result = builder.select(builder.fcmp_ordered("<", x, zero), constant(lanes, float("nan")), result)
    return keep_nan(lanes, x, result)


def hyperbolic_tangent(lanes: Lanes, x: ir.Value) -> ir.Value:
    """tanh x as a rational function; x itself near 0 and exactly 1 for large |x|."""
    builder = lanes.builder
    inside = limited(lanes, x, -TANH_ONE_ABOVE, TANH_ONE_ABOVE)
    z = builder.fmul(inside, inside)
    p = builder.fmul(horner(lanes, z, TANH_ODD), inside)
    result = quotient(lanes, p, horner(lanes, z, TANH_EVEN))
    magnitude = lanes.intrinsic("fabs", x)
    one = lanes.intrinsic("copysign", constant(lanes, 1.0), x)
    result = builder.select(builder.fcmp_ordered("<", magnitude, constant(lanes, TANH_LINEAR_BELOW)), x, result)
    above = builder.fcmp_ordered(">", lanes.intrinsic("fabs", result), constant(lanes, 1.0))
    far = builder.fcmp_ordered(">=", magnitude, constant(lanes, TANH_ONE_ABOVE))
    return builder.select(builder.or_(above, far), one, result)


def error_function(lanes: Lanes, x: ir.Value) -> ir.Value:
    """erf x as a rational function on [-3.83, 3.83]."""
    inside = limited(lanes, x, -ERF_ONE_ABOVE, ERF_ONE_ABOVE)
    z = lanes.builder.fmul(inside, inside)
    p = lanes.builder.fmul(horner(lanes, z, ERF_ODD), inside)
    return quotient(lanes, p, horner(lanes, z, ERF_EVEN))


def gaussian(lanes: Lanes, x: ir.Value) -> ir.Value:
    """e**(-x * x), with the square rounded to f32."""
    magnitude = _bounded_magnitude(lanes, x)
    return _gaussian_of(lanes, lanes.builder.fmul(magnitude, magnitude))


def _bounded_magnitude(lanes: Lanes, x: ir.Value) -> ir.Value:
    """|x|, at most a bound from which on e**(-x * x) is 0; NaN stays NaN."""
    magnitude, highest = lanes.intrinsic("fabs", x), constant(lanes, GAUSSIAN_ZERO_ABOVE)
    return lanes.builder.select(lanes.builder.fcmp_ordered("<", highest, magnitude), highest, magnitude)


def _gaussian_of(lanes: Lanes, square: ir.Value) -> ir.Value:
    """e**-square for squares up to 121, which need no clamping."""
    n = lanes.intrinsic("rint", lanes.builder.fmul(square, constant(lanes, -LOG2_E)))
    r = fused(lanes, n, constant(lanes, -LN2_HIGH), lanes.builder.fneg(square))
    r = fused(lanes, n, constant(lanes, -LN2_LOW), r)
    return times_power_of_two(lanes, horner(lanes, r, GAUSSIAN), n)


def complementary_error_function(lanes: Lanes, x: ir.Value) -> ir.Value:
    """e**(-x * x) times a polynomial in 1 / (1 + |x| / 2), relative error 1e-6; for negative x two minus that."""
    builder, one = lanes.builder, constant(lanes, 1.0)
    a = _bounded_magnitude(lanes, x)
    square = builder.fmul(a, a)
    t = quotient(lanes, one, fused(lanes, a, constant(lanes, 0.5), one))
    p = builder.fmul(horner(lanes, t, ERFC), t)
    # The rounding error of the square matters where the square is large.
    rest = fused(lanes, builder.fneg(a), a, square)
    result = builder.fmul(_gaussian_of(lanes, square), fused(lanes, p, rest, p))
    negative = builder.fcmp_ordered("<", x, constant(lanes, 0.0))
    return builder.select(negative, builder.fsub(constant(lanes, 2.0), result), result)


def logistic(lanes: Lanes, x: ir.Value) -> ir.Value:
    """1 / (1 + e**-x); 0 where the quotient is a denormal number."""
    builder, one = lanes.builder, constant(lanes, 1.0)
    divisor = builder.fadd(one, exponential(lanes, builder.fneg(x)))
    if lanes.width != 16:
        return builder.fdiv(one, divisor)
    beyond = builder.fcmp_ordered(">", divisor, constant(lanes, 2.0**126))
    return builder.select(beyond, constant(lanes, 0.0), quotient(lanes, one, divisor))
