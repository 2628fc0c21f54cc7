"""LLVM instructions on vectors of this processor's width: float32 in registers, float32, f16 or bf16 in memory."""

from __future__ import annotations

from functools import cache

from engine.codelets.language.memory import F32, I32, I64, POINTER, VOID, call
from engine.machine_code.first_lanes import load_first, store_first
from engine.machine_code.llvm import BFloat, ir
from engine.machine_code.processor import lanes, rounds_to_bf16

BIT, I16, HALF = ir.IntType(1), ir.IntType(16), ir.HalfType()
HALF_TYPES = ("f16", "bf16")
F16_IN_F32 = "f16 in f32"
"""The element type of float32 in memory that is rounded to f16 where it is read."""
STORED = {"f32": F32, "f16": I16, "bf16": I16, F16_IN_F32: F32}
BYTES = {"f32": 4, "f16": 2, "bf16": 2, F16_IN_F32: 4}
_FIRST = I32(0)


# Types and constants are formatted as text once, so that they are made once.
@cache
def vector_type(element: ir.Type = F32) -> ir.VectorType:
    """A vector of lanes() elements."""
    return ir.VectorType(element, lanes())


@cache
def zeros(element: ir.Type = F32) -> ir.Constant:
    """A vector of zeros."""
    return ir.Constant(vector_type(element), [0] * lanes())


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
    pointer = builder.inttoptr(address, POINTER)
    if mask is None:
        bits = builder.load(pointer, align=2, typ=vector_type(I16))
    else:
        bits = _masked_load(builder, pointer, mask, I16)
    return builder.zext(bits, vector_type(I32))


def load_vector(
    builder: ir.IRBuilder, address: ir.Value, mask: ir.Value | None = None, element_type: str = "f32"
) -> ir.Value:
    """Loads a vector as float32 from an int64 address; lanes outside the mask are not accessed and become 0."""
    pointer, size, stored = builder.inttoptr(address, POINTER), BYTES[element_type], STORED[element_type]
    if mask is None:
        value = builder.load(pointer, align=size, typ=vector_type(stored))
    else:
        value = _masked_load(builder, pointer, mask, stored)
    return widened(builder, value, element_type)


def _masked_load(builder: ir.IRBuilder, pointer: ir.Value, mask: ir.Value, stored: ir.Type) -> ir.Value:
    """A vector of elements as they are in memory; lanes outside the mask are not accessed and become 0."""
    if mask.type.element == I32:
        if stored == F32:
            return call(builder, "x86.avx.maskload.ps.256", vector_type(), pointer, mask)
        count = builder.neg(builder.extract_element(mask, _FIRST))
        return load_first(builder, builder.ptrtoint(pointer, I64), count, stored)
    name, size = f"masked.load.v{lanes()}{stored.intrinsic_name}.p0", I32(4 if stored == F32 else 2)
    return call(builder, name, vector_type(stored), pointer, size, mask, zeros(stored))


def store_vector(
    builder: ir.IRBuilder,
    value: ir.Value,
    address: ir.Value,
    mask: ir.Value | None = None,
    element_type: str = "f32",
) -> None:
    """Stores a vector of float32, `narrowed`, to an int64 address; lanes outside the mask are not accessed."""
    pointer, size, stored = builder.inttoptr(address, POINTER), BYTES[element_type], STORED[element_type]
    value = narrowed(builder, value, element_type)
    if mask is None:
        builder.store(value, pointer, align=size)
    elif mask.type.element == I32:
        store_first(builder, value, address, builder.neg(builder.extract_element(mask, _FIRST)))
    else:
        name = f"masked.store.v{lanes()}{stored.intrinsic_name}.p0"
        call(builder, name, VOID, value, pointer, I32(size), mask)


def _like(value: ir.Value, element: ir.Type) -> ir.Type:
    """The type of a vector, or of a scalar, with other elements."""
    return ir.VectorType(element, value.type.count) if isinstance(value.type, ir.VectorType) else element


def _all(value: ir.Value, number: int) -> ir.Constant:
    """The int32 number in as many lanes as a value has."""
    kind = _like(value, I32)
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


def widened(builder: ir.IRBuilder, bits: ir.Value, element_type: str) -> ir.Value:
    """The 16 bits of f16 or bf16 elements, a vector or a scalar, as float32; float32 as it is, or rounded to f16."""
    if element_type == "f16":
        return builder.fpext(builder.bitcast(bits, _like(bits, HALF)), _like(bits, F32))
    if element_type == "bf16":
        wide = builder.zext(bits, _like(bits, I32))
        return builder.bitcast(builder.shl(wide, _all(bits, 16)), _like(bits, F32))
    if element_type == F16_IN_F32:
        return builder.fpext(builder.fptrunc(bits, _like(bits, HALF)), _like(bits, F32))
    return bits


def narrowed(builder: ir.IRBuilder, value: ir.Value, element_type: str) -> ir.Value:
    """Rounds float32 to nearest f16 or bf16, ties to even. NaN is quietened, as rounding could make it infinite."""
    if element_type == "f16":
        return builder.bitcast(builder.fptrunc(value, _like(value, HALF)), _like(value, I16))
    if element_type != "bf16":
        return value
    if rounds_to_bf16():
        return builder.bitcast(builder.fptrunc(value, _like(value, BFloat())), _like(value, I16))
    bits = builder.bitcast(value, _like(value, I32))
    odd = builder.and_(builder.lshr(bits, _all(value, 16)), _all(value, 1))
    rounded = builder.add(builder.add(bits, _all(value, 0x7FFF)), odd)
    quiet = builder.or_(bits, _all(value, 0x400000))
    kept = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    return builder.trunc(builder.lshr(kept, _all(value, 16)), _like(value, I16))
