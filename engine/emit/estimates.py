"""Quotients and roots of f32 lanes from AVX-512's 14-bit estimates and a Newton step: a quarter of division's time."""

from __future__ import annotations

from engine.emit.conversion import MANTISSA_BITS
from engine.emit.lanes import F32, I16, I32, Lanes
from engine.emit.loops import if_true
from engine.machine_code.llvm import ir

ALL = ir.Constant(I16, -1)
AS_THE_STATE_SAYS = ir.Constant(I32, 4)
"""Rounding mode of an AVX-512 instruction: that of the control register."""
ZERO, NEGATIVE_INFINITY, INFINITY = 2, 4, 5
"""Classes of numbers in the numbering of `vfixupimmps`; zeros of either sign are one."""
ITSELF, SIGNED_INFINITY, NEGATIVE_ZERO, POSITIVE_ZERO = 1, 6, 7, 8
"""Replacements by `where_it_is`: the number itself, infinity with its sign, or a zero."""
LARGEST_POWER = 96
"""Quotients of f16 by 2**96 are no denormal f32, nor is the reciprocal."""


def constant(lanes: Lanes, value: float) -> ir.Constant:
    """An f32 in all lanes."""
    return lanes.constant("f32", value)


def fused(lanes: Lanes, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once."""
    return lanes.intrinsic("fma", a, b, c)


def estimated(lanes: Lanes, name: str, x: ir.Value) -> ir.Value:
    """rcp14 or rsqrt14: within 2**-14 of the reciprocal (square root), relatively; exact for zeros and infinities."""
    return lanes.call(f"llvm.x86.avx512.{name}.ps.512", x.type, [x, x, ALL])


def where_it_is(lanes: Lanes, x: ir.Value, known: dict[int, int], result: ir.Value) -> ir.Value:
    """The result, but in lanes where x is of a class in `known`, the replacement given there: one instruction."""
    table = lanes.splat_constant(I32, sum(response << 4 * kind for kind, response in known.items()))
    arguments = [result, x, table, ir.Constant(I32, 0), ALL, AS_THE_STATE_SAYS]
    return lanes.call("llvm.x86.avx512.mask.fixupimm.ps.512", x.type, arguments)


def _half(lanes: Lanes, x: ir.Value) -> ir.Value:
    """x / 2 by its exponent, an integer's instruction; for ordinary x, others only where the result is not used."""
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
    """The correctly rounded f32 quotient of f16 by a loop-invariant divisor: a product with its reciprocal.

    That of a power of two, as loss scales are, is exact. Others' product is corrected.
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
    """Divides exactly by any divisor, where the dividend was f16.

    The product is off by an ULP at most; a step with the exact remainder ends at the nearest (Markstein's theorem). A
    dividend that was f16 is so far above the smallest f32 that remainders never underflow; divisors whose reciprocal
    would are scaled. Where there is no such step, at zero and infinity, the product is what division gives.
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
    # If both are equal the product has the sign of a zero; it is kept, too, where the step gave a NaN.
    return builder.select(builder.fcmp_ordered("!=", nearest, product), nearest, product)


def reciprocal_square_root(lanes: Lanes, x: ir.Value) -> ir.Value:
    """1 / sqrt(x) within an ULP, in 16 lanes."""
    estimate = estimated(lanes, "rsqrt14", x)
    product = lanes.builder.fmul(x, estimate)
    error = fused(lanes, lanes.builder.fneg(product), estimate, constant(lanes, 1.0))
    better = fused(lanes, _half(lanes, estimate), error, estimate)
    return where_it_is(lanes, x, {ZERO: SIGNED_INFINITY, INFINITY: POSITIVE_ZERO}, better)


def square_root(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Computes square roots within 2 ULP from their reciprocals' estimates: AVX-512's instruction runs at a third of
    the speed.
    """
    if lanes.width != 16:
        return lanes.intrinsic("sqrt", x)
    estimate = estimated(lanes, "rsqrt14", x)
    root = lanes.builder.fmul(x, estimate)
    error = fused(lanes, lanes.builder.fneg(root), root, x)
    better = fused(lanes, _half(lanes, estimate), error, root)
    return where_it_is(lanes, x, {ZERO: ITSELF, INFINITY: ITSELF}, better)
