"""Quotients and roots of f32 lanes from AVX-512's 14-bit estimates and a Newton step: a quarter of division's time.

AVX2 has estimates of 12 bits. They replace a root and a division by one series; a division alone is as fast.
"""

from __future__ import annotations

from engine.codelets.language.lanes import F32, I16, I32, Lanes
from engine.emit.conversion import MANTISSA_BITS
from engine.emit.loops import if_true
from engine.machine_code.llvm import ir

ALL = ir.Constant(I16, -1)
AS_THE_STATE_SAYS = ir.Constant(I32, 4)
"""Rounding mode of an AVX-512 instruction: taken from the control register."""
ZERO, NEGATIVE_INFINITY, INFINITY = 2, 4, 5
"""Classes of numbers as `vfixupimmps` numbers them; zeros of either sign are one class."""
ITSELF, SIGNED_INFINITY, NEGATIVE_ZERO, POSITIVE_ZERO = 1, 6, 7, 8
"""Replacements by `where_it_is`: the number itself, infinity with its sign, or a zero."""
LARGEST_POWER = 96
"""Exponent of the largest divisor that needs no scaling: neither f16 / 2**96 nor 2**-96 is a denormal f32."""


def constant(lanes: Lanes, value: float) -> ir.Constant:
    """An f32 in all lanes."""
    return lanes.constant("f32", value)


def fused(lanes: Lanes, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once."""
    return lanes.intrinsic("fma", a, b, c)


def estimated(lanes: Lanes, name: str, x: ir.Value) -> ir.Value:
    """rcp14 or rsqrt14: within a relative error of 2**-14 of 1 / x or 1 / sqrt(x); exact for zeros and infinities."""
    return lanes.call(f"llvm.x86.avx512.{name}.ps.512", x.type, [x, x, ALL])


def where_it_is(lanes: Lanes, x: ir.Value, known: dict[int, int], result: ir.Value) -> ir.Value:
    """Replaces the result in lanes where x is of a class in `known` as given there, with one instruction."""
    table = lanes.splat_constant(I32, sum(response << 4 * kind for kind, response in known.items()))
    arguments = [result, x, table, ir.Constant(I32, 0), ALL, AS_THE_STATE_SAYS]
    return lanes.call("llvm.x86.avx512.mask.fixupimm.ps.512", x.type, arguments)


def _half(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Halves ordinary x by an integer subtraction from the exponent; results for other x are not used."""
    bits = lanes.builder.bitcast(x, lanes.of(I32))
    return lanes.builder.bitcast(lanes.builder.sub(bits, lanes.splat_constant(I32, 1 << MANTISSA_BITS["f32"])), x.type)


def _better_reciprocal(lanes: Lanes, x: ir.Value) -> ir.Value:
    estimate = estimated(lanes, "rcp14", x)
    error = fused(lanes, lanes.builder.fneg(x), estimate, constant(lanes, 1.0))
    return fused(lanes, error, estimate, estimate)


def quotient(lanes: Lanes, dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    """dividend / divisor within 2 ULP, for ordinary divisors up to 2**126."""
    if lanes.width != 16:
        return lanes.builder.fdiv(dividend, divisor)
    return lanes.builder.fmul(dividend, _better_reciprocal(lanes, divisor))


def reciprocal(lanes: Lanes, x: ir.Value) -> ir.Value:
    """1 / x within an ULP, also for zeros and infinities."""
    if lanes.width != 16:
        return lanes.builder.fdiv(constant(lanes, 1.0), x)
    known = {ZERO: SIGNED_INFINITY, INFINITY: POSITIVE_ZERO, NEGATIVE_INFINITY: NEGATIVE_ZERO}
    return where_it_is(lanes, x, known, _better_reciprocal(lanes, x))


def guarded_quotient(lanes: Lanes, dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    """The quotient, also for divisors that are zero or infinite."""
    if lanes.width != 16:
        return lanes.builder.fdiv(dividend, divisor)
    return lanes.builder.fmul(dividend, reciprocal(lanes, divisor))


def quotient_of_half(lanes: Lanes, dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    """Divides f16 by a loop-invariant divisor, correctly rounded to f32, as a product with the divisor's reciprocal.

    The reciprocal of a power of two, such as a loss scale, is exact. For other divisors the product is corrected.
    """
    builder = lanes.builder
    one = builder.extract_element(divisor, I32(0))
    mantissa = builder.and_(builder.bitcast(one, I32), I32((1 << MANTISSA_BITS["f32"]) - 1))
    magnitude = Lanes(builder, 1).intrinsic("fabs", one)
    ordinary = builder.and_(
        builder.fcmp_ordered(">=", magnitude, F32(2.0**-LARGEST_POWER)),
        builder.fcmp_ordered("<=", magnitude, F32(2.0**LARGEST_POWER)),
    )
    inexact = builder.not_(builder.and_(ordinary, builder.icmp_unsigned("==", mantissa, I32(0))))
    product = builder.fmul(dividend, builder.fdiv(constant(lanes, 1.0), divisor))
    return if_true(builder, inexact, [product], lambda _: [_corrected_quotient_of_half(lanes, dividend, divisor)])[0]


def _corrected_quotient_of_half(lanes: Lanes, dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    """Divides a widened f16 by any divisor, correctly rounded.

    The product is off by at most one ULP, and a step with the exact remainder reaches the nearest f32 (Markstein's
    theorem). A widened f16 is so far above the smallest f32 that remainders never underflow; divisors whose reciprocal
    would underflow are scaled. Where the product is zero or infinite no step is taken: the product is the quotient.
    """
    builder = lanes.builder
    huge = builder.fcmp_ordered(">", lanes.intrinsic("fabs", divisor), constant(lanes, 2.0**LARGEST_POWER))
    scale = builder.select(huge, constant(lanes, 2.0**-30), constant(lanes, 1.0))
    divisor, dividend = builder.fmul(divisor, scale), builder.fmul(dividend, scale)
    inverse = builder.fdiv(constant(lanes, 1.0), divisor)
    product = builder.fmul(dividend, inverse)
    remainder = fused(lanes, builder.fneg(product), divisor, dividend)
    nearest = fused(lanes, remainder, inverse, product)
    if lanes.width == 16:
        return where_it_is(lanes, product, {ZERO: ITSELF, NEGATIVE_INFINITY: ITSELF, INFINITY: ITSELF}, nearest)
    # If both are equal, the product has the right sign of zero; the product is also kept where the step gave NaN.
    return builder.select(builder.fcmp_ordered("!=", nearest, product), nearest, product)


def reciprocal_square_root(lanes: Lanes, x: ir.Value) -> ir.Value:
    """1 / sqrt(x) within an ULP, in 8 or 16 lanes; estimates are exact for zeros and infinities, whose error is NaN."""
    narrow = lanes.width == 8
    estimate = lanes.call("llvm.x86.avx.rsqrt.ps.256", x.type, [x]) if narrow else estimated(lanes, "rsqrt14", x)
    product = lanes.builder.fmul(x, estimate)
    error = fused(lanes, lanes.builder.fneg(product), estimate, constant(lanes, 1.0))
    if narrow:
        series = lanes.builder.fmul(error, fused(lanes, error, constant(lanes, 0.375), constant(lanes, 0.5)))
        better = fused(lanes, series, estimate, estimate)
        return lanes.builder.select(lanes.builder.fcmp_ordered("ord", error, error), better, estimate)
    better = fused(lanes, _half(lanes, estimate), error, estimate)
    return where_it_is(lanes, x, {ZERO: SIGNED_INFINITY, INFINITY: POSITIVE_ZERO}, better)


def square_root(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Computes square roots within 2 ULP from estimated reciprocals: AVX-512's sqrt runs at a third of the speed."""
    if lanes.width != 16:
        return lanes.intrinsic("sqrt", x)
    estimate = estimated(lanes, "rsqrt14", x)
    root = lanes.builder.fmul(x, estimate)
    error = fused(lanes, lanes.builder.fneg(root), root, x)
    better = fused(lanes, _half(lanes, estimate), error, root)
    return where_it_is(lanes, x, {ZERO: ITSELF, INFINITY: ITSELF}, better)
