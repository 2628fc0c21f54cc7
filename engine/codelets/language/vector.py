"""LLVM instructions on vectors of this processor's width: float32 in registers, float32, f16 or bf16 in memory."""

from __future__ import annotations

from functools import cache

from engine.codelets.language.lanes import ITEM_BYTES, Lanes
from engine.codelets.language.memory import F32, I32, I64, call
from engine.machine_code.llvm import BFloat, Splat, ir
from engine.machine_code.processor import lanes

BIT = ir.IntType(1)
BYTES = ITEM_BYTES
_FIRST = I32(0)


# Types and constants are formatted as text once, so that they are made once.
@cache
def vector_type(element: ir.Type = F32) -> ir.VectorType:
    """A vector of lanes() elements."""
    return ir.VectorType(element, lanes())


@cache
def all_lanes(number: float, element: ir.Type = I32) -> ir.Constant:
    """A vector with the number in all lanes."""
    return Splat(vector_type(element), number)


def zeros(element: ir.Type = F32) -> ir.Constant:
    """A vector of zeros."""
    return all_lanes(0, element)


@cache
def undefined(element: ir.Type) -> ir.Constant:
    """A vector whose elements are undefined."""
    return ir.Constant(vector_type(element), ir.Undefined)


@cache
def _lane_numbers(element: ir.Type) -> ir.Constant:
    return ir.Constant(vector_type(element), list(range(lanes())))


def splat(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    """A vector with the scalar in all lanes."""
    nothing = undefined(scalar.type)
    return builder.shuffle_vector(builder.insert_element(nothing, scalar, _FIRST), nothing, zeros(I32))


def lane_mask(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    """A mask of the lanes below an int64 count: bits, or with AVX2 int32 that are negative there.

    AVX2 has masks in the signs of a vector. LLVM keeps a vector of bits as 16-bit integers between blocks, and would
    make signs of them in each iteration, for which the largest micro kernels have no register.
    """
    if lanes() == 8:
        most = call(builder, "smin.i64", I64, count, I64(lanes()))
        return builder.sub(_lane_numbers(I32), splat(builder, builder.trunc(most, I32)))
    return builder.icmp_signed("<", _lane_numbers(I64), splat(builder, count))


def mask_bits(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """A mask as a vector of bits."""
    return mask if mask.type.element == BIT else builder.icmp_signed("<", mask, zeros(I32))


def multiply_add(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once where the processor supports that."""
    return call(builder, f"fmuladd.v{lanes()}f32", vector_type(), a, b, c)


def multiply_add_pairs(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """c plus both products of the pair of bf16 in each float32 lane of a and b, in 16 lanes."""
    pairs = (builder.bitcast(each, ir.VectorType(BFloat(), 2 * lanes())) for each in (a, b))
    return call(builder, "x86.avx512bf16.dpbf16ps.512", vector_type(), c, *pairs)


def load_bits(builder: ir.IRBuilder, address: ir.Value, mask: ir.Value | None = None) -> ir.Value:
    """Loads 16-bit integers as a vector of int32; lanes outside the mask are not accessed and become 0."""
    return builder.zext(Lanes(builder, lanes()).load(address, "u16", mask, is_first=False), vector_type(I32))


def load_vector(
    builder: ir.IRBuilder, address: ir.Value, mask: ir.Value | None = None, element_type: str = "f32"
) -> ir.Value:
    """Loads a vector as float32 from an int64 address; lanes outside the mask are not accessed and become 0."""
    return Lanes(builder, lanes()).load(address, element_type, mask, is_first=False)


def store_vector(
    builder: ir.IRBuilder,
    value: ir.Value,
    address: ir.Value,
    mask: ir.Value | None = None,
    element_type: str = "f32",
) -> None:
    """Stores a vector of float32, rounded to the type, to an int64 address; lanes outside the mask are not accessed.

    Numbers are results of arithmetic on elements of that type, if it has 16 bits.
    """
    vectors = Lanes(builder, lanes())
    rounded = vectors.rounded(value, element_type, is_normal=True, has_short_nan=True)
    vectors.store(rounded, address, element_type, mask, is_first=False)


def sum_of_lanes(builder: ir.IRBuilder, summed: ir.Value) -> ir.Value:
    """The sum of a vector's lanes, by halves."""
    step = lanes() // 2
    while step:
        order = ir.Constant(vector_type(I32), [(k + step) % lanes() for k in range(lanes())])
        summed = builder.fadd(summed, builder.shuffle_vector(summed, summed, order))
        step //= 2
    return builder.extract_element(summed, _FIRST)


def combined(builder: ir.IRBuilder, opcode: str, old: ir.Value, new: ir.Value) -> ir.Value:
    """Combines two float32, vectors or scalars. GT and LT keep the old one where it compares so with the new one.

    The minimum or maximum is the new one of equal ones, and NaN if one is NaN. For "maximum-number" the result is NaN
    only if both are, and of equal ones the old one.
    """
    if opcode == "assign":
        return new
    if opcode in ("add", "multiply"):
        return builder.fadd(old, new) if opcode == "add" else builder.fmul(old, new)
    if opcode == "maximum-number":
        is_new = builder.or_(builder.fcmp_ordered(">", new, old), builder.fcmp_unordered("uno", old, old))
        return builder.select(is_new, new, old)
    sign = ">" if opcode in ("maximum", "GT") else "<"
    chosen = builder.select(builder.fcmp_ordered(sign, old, new), old, new)
    if opcode in ("GT", "LT"):
        return chosen
    return builder.select(builder.fcmp_unordered("uno", old, old), old, chosen)
