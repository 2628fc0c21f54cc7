"""Stores of the first lanes of a vector with AVX2, whose masked stores take twelve cycles on AMD's processors."""

from __future__ import annotations

from engine.machine_code.llvm import ir

LANES = 8  # of AVX2
MOST_BYTES = 4  # of an element
I32, I64 = ir.IntType(32), ir.IntType(64)
WORDS = ir.VectorType(I32, LANES)
NUMBERS = ir.Constant(WORDS, list(range(LANES)))
PERMUTE = "llvm.x86.avx2.permd"


def store_first(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, count: ir.Value) -> None:
    """Stores the lanes below an int32 count of elements of at most MOST_BYTES, to an int64 address.

    They are two parts of 4 or of 2 lanes, the first and the last ones, which may overlap, or a single lane.
    """
    with builder.if_else(builder.icmp_signed(">=", count, I32(4))) as (four, fewer):
        with four:
            _store_ends(builder, value, address, count, 4)
        with fewer, builder.if_else(builder.icmp_signed(">=", count, I32(2))) as (two, fewest):
            with two:
                _store_ends(builder, value, address, count, 2)
            with fewest, builder.if_then(builder.icmp_signed("==", count, I32(1))):
                _store_part(builder, value, address, 1)


def _store_ends(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, count: ir.Value, width: int) -> None:
    begin = builder.sub(count, I32(width))
    first = builder.insert_element(ir.Constant(WORDS, ir.Undefined), begin, I32(0))
    order = builder.add(NUMBERS, builder.shuffle_vector(first, first, ir.Constant(WORDS, [0] * LANES)))
    last, bits = _permuted(builder, value, order)
    offset = builder.mul(builder.sext(begin, I64), I64(bits // 8))
    _store_part(builder, value, address, width)
    _store_part(builder, last, builder.add(address, offset), width)


def _permuted(builder: ir.IRBuilder, value: ir.Value, order: ir.Value) -> tuple[ir.Value, int]:
    """The elements in another order, and the bits of one."""
    element = value.type.element
    bits = element.width if isinstance(element, ir.IntType) else 16 if isinstance(element, ir.HalfType) else 32
    integers = builder.bitcast(value, ir.VectorType(ir.IntType(bits), LANES))
    words = integers if bits == 32 else builder.zext(integers, WORDS)
    known = builder.module.globals.get(PERMUTE)
    permute = known or ir.Function(builder.module, ir.FunctionType(WORDS, [WORDS, WORDS]), PERMUTE)
    words = builder.call(permute, [words, order])
    return builder.bitcast(words if bits == 32 else builder.trunc(words, integers.type), value.type), bits


def _store_part(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, width: int) -> None:
    """Stores the first `width` lanes."""
    part = builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(I32, width), list(range(width))))
    pointer = builder.inttoptr(address, ir.PointerType(ir.IntType(8)))
    builder.store(part, builder.bitcast(pointer, part.type.as_pointer()), align=1)
