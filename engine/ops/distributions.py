"""Elementwise computations of `rng`'s numbers from random bits, shared by its definition and compiled programs."""

from __future__ import annotations

import math

from engine.errors import UnsupportedOperation
from engine.ir import Computation, Instruction, Shape
from engine.ir.builder import Builder

SIGNIFICANT_BITS = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
"""Random bits of a float: k / 2**bits is exact."""


def bits_of(instruction: Instruction) -> Shape:
    """Shape of the random bits of an `rng`: u32 or u64 for each element, [2, ...] for a normal distribution."""
    shape = instruction.array_shape
    words = "u64" if shape.dtype.itemsize == 8 else "u32"
    pairs = (2,) if instruction["distribution"] == "RNG_NORMAL" else ()
    return Shape(words, (*pairs, *shape.dimensions))


def distribution(instruction: Instruction) -> Computation:
    """The computation of an `rng`'s result from its bits and its two scalar operands.

    Raises UnsupportedOperation for types without such a distribution.
    """
    shape = instruction.array_shape
    builder = Builder(instruction["distribution"])
    bits = builder.parameter_of(bits_of(instruction))
    first, second = (
        builder.broadcast(builder.parameter_of(o.array_shape), shape.dimensions, ()) for o in instruction.operands
    )
    if instruction["distribution"] == "RNG_NORMAL" and shape.element_type in SIGNIFICANT_BITS:
        return builder.build(_normal(builder, bits, first, second))
    if instruction["distribution"] != "RNG_UNIFORM" or shape.dtype.kind == "c":
        raise UnsupportedOperation(
            f"Expected rng with RNG_UNIFORM, or with RNG_NORMAL of floating-point numbers. Received: {instruction!r} "
            f"(from {instruction.op_name}). Draw floating-point numbers and convert them."
        )
    if shape.element_type == "pred":
        return builder.build(_one_of(builder, bits, first, second))
    uniform = _uniform_float if shape.element_type in SIGNIFICANT_BITS else _uniform_integer
    return builder.build(uniform(builder, bits, first, second))


def _splat(builder: Builder, like: Instruction, value: float) -> Instruction:
    return builder.splat(value, like.array_shape.dimensions, like.array_shape.element_type)


def _fraction(builder: Builder, bits: Instruction, digits: int) -> Instruction:
    """k / 2**digits in [0, 1) from the highest `digits` bits, as f32 or f64."""
    size = 8 * bits.array_shape.dtype.itemsize
    shifted = builder.elementwise("shift-right-logical", bits, _splat(builder, bits, size - digits))
    # Up to 2**53 signed and unsigned numbers are equal, and signed ones convert faster.
    signed = builder.convert(shifted, f"s{size}")
    number = builder.convert(signed, f"f{size}")
    return builder.multiply(number, _splat(builder, number, 2.0**-digits))


def _uniform_float(builder: Builder, bits: Instruction, low: Instruction, high: Instruction) -> Instruction:
    """low + (high - low) * fraction, in f32 for 16-bit floats; a number that rounds up to `high` becomes `low`."""
    kind = low.array_shape.element_type
    fraction = _fraction(builder, bits, SIGNIFICANT_BITS[kind])
    wide = fraction.array_shape.element_type
    start, end = builder.convert(low, wide), builder.convert(high, wide)
    scaled = builder.multiply(fraction, builder.subtract(end, start))
    drawn = builder.convert(builder.add(start, scaled), kind)
    return builder.select(builder.compare(drawn, high, "GE"), low, drawn)


def _uniform_integer(builder: Builder, bits: Instruction, low: Instruction, high: Instruction) -> Instruction:
    """low + a word reduced to [0, high - low): by remainder for u64, else by the high word of a product."""
    words = bits.array_shape.element_type
    start, end = builder.convert(low, words), builder.convert(high, words)
    width = builder.subtract(end, start)
    if words == "u64":
        offset = builder.elementwise("remainder", bits, width)
    else:
        product = builder.multiply(builder.convert(bits, "u64"), builder.convert(width, "u64"))
        upper = builder.elementwise("shift-right-logical", product, _splat(builder, product, 32))
        offset = builder.convert(upper, words)
    return builder.convert(builder.add(start, offset), low.array_shape.element_type)


def _one_of(builder: Builder, bits: Instruction, first: Instruction, second: Instruction) -> Instruction:
    bit = builder.elementwise("and", bits, _splat(builder, bits, 1))
    return builder.select(builder.compare(bit, _splat(builder, bits, 0), "EQ"), first, second)


def _normal(builder: Builder, bits: Instruction, mean: Instruction, deviation: Instruction) -> Instruction:
    """The Box-Muller transform of two words, in f32 for 16-bit floats."""
    shape = bits.array_shape
    words = []
    for number in range(2):
        taken = builder.slice(bits, (number, number + 1), *((0, size) for size in shape.dimensions[1:]))
        words.append(builder.reshape(taken, shape.dimensions[1:]))
    size = 8 * shape.dtype.itemsize
    kind = f"f{size}"
    whole = builder.convert(words[0], kind)
    # All bits, offset by half a step from zero: the logarithm is finite, and far tails are reached.
    scaled = builder.multiply(whole, _splat(builder, whole, 2.0**-size))
    positive = builder.add(scaled, _splat(builder, whole, 2.0 ** -(size + 1)))
    logarithm = builder.elementwise("log", positive)
    # Rounding may make the number 1 and its logarithm 0, whose square root is 0.
    radius = builder.elementwise("sqrt", builder.multiply(logarithm, _splat(builder, logarithm, -2.0)))
    fraction = _fraction(builder, words[1], SIGNIFICANT_BITS[kind])
    angle = builder.multiply(fraction, _splat(builder, fraction, 2 * math.pi))
    standard = builder.multiply(radius, builder.elementwise("cosine", angle))
    scale, centre = builder.convert(deviation, kind), builder.convert(mean, kind)
    return builder.convert(builder.add(centre, builder.multiply(scale, standard)), mean.array_shape.element_type)
