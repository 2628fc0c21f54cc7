"""Loads and stores of the first lanes of a vector with AVX2.

Its masked stores take twelve cycles on AMD's processors, and it has no masked loads of elements below four bytes.
"""

from __future__ import annotations

from engine.machine_code.llvm import call_named, ir

LANES = 8  # of AVX2
MOST_BYTES = 4  # of an element
PAGE_BYTES = 4096  # the fewest of any system
I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
WORDS = ir.VectorType(I32, LANES)
NUMBERS = ir.Constant(WORDS, list(range(LANES)))
PERMUTE, SHUFFLE = "llvm.x86.avx2.permd", "llvm.x86.ssse3.pshuf.b.128"
VECTOR = ir.VectorType(I8, 16)
NOTHING = "no_lanes"
"""Zeros of a module, which are read in place of no lanes at all: their address may be anywhere."""


def load_first(builder: ir.IRBuilder, address: ir.Value, count: ir.Value, element: ir.Type) -> ir.Value:
    """Loads the lanes below an int32 count of elements of one or two bytes, from an int64 address; others are 0.

    All lanes are read, or where these would reach into another page, as many bytes up to the last lane.
    """
    size = _bytes(element)
    kind = ir.VectorType(ir.IntType(8 * size), LANES)
    some = builder.icmp_signed(">", count, I32(0))
    nothing = builder.module.globals.get(NOTHING) or _zeros(builder.module)
    address = builder.select(some, address, builder.ptrtoint(nothing, I64))
    beyond = builder.icmp_unsigned(">", builder.and_(address, I64(PAGE_BYTES - 1)), I64(PAGE_BYTES - LANES * size))
    missing = builder.mul(builder.sub(I32(LANES), count), I32(size))
    back = builder.select(builder.and_(beyond, some), missing, I32(0))
    pointer = builder.inttoptr(builder.sub(address, builder.zext(back, I64)), ir.PointerType(I8))
    value = _from_byte(builder, builder.load(pointer, align=1, typ=kind), back)
    counts = builder.insert_element(ir.Constant(WORDS, ir.Undefined), count, I32(0))
    counts = builder.shuffle_vector(counts, counts, ir.Constant(WORDS, [0] * LANES))
    kept = builder.sext(builder.icmp_signed("<", NUMBERS, counts), kind)
    return builder.bitcast(builder.and_(value, kept), ir.VectorType(element, LANES))


def _zeros(module: ir.Module) -> ir.GlobalVariable:
    made = ir.GlobalVariable(module, VECTOR, NOTHING)
    made.linkage, made.global_constant, made.initializer = "internal", True, ir.Constant(VECTOR, None)
    return made


def _bytes(element: ir.Type) -> int:
    return element.width // 8 if isinstance(element, ir.IntType) else 2 if isinstance(element, ir.HalfType) else 4


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
    size = _bytes(value.type.element)
    offset = builder.mul(begin, I32(size))
    if size == 4:
        first = builder.insert_element(ir.Constant(WORDS, ir.Undefined), begin, I32(0))
        order = builder.add(NUMBERS, builder.shuffle_vector(first, first, ir.Constant(WORDS, [0] * LANES)))
        last = builder.bitcast(call_named(builder, PERMUTE, WORDS, builder.bitcast(value, WORDS), order), value.type)
    else:
        last = _from_byte(builder, value, offset)
    _store_part(builder, value, address, width)
    _store_part(builder, last, builder.add(address, builder.sext(offset, I64)), width)


def _from_byte(builder: ir.IRBuilder, value: ir.Value, first: ir.Value) -> ir.Value:
    """The elements from an int32 number of a byte on, of one or two bytes each, and any others after them."""
    if value.type.element == I8:
        word = builder.lshr(builder.bitcast(value, I64), builder.zext(builder.shl(first, I32(3)), I64))
        return builder.bitcast(word, value.type)
    number = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), builder.trunc(first, I8), I32(0))
    numbers = builder.shuffle_vector(number, number, ir.Constant(ir.VectorType(I32, 16), [0] * 16))
    order = builder.add(ir.Constant(VECTOR, list(range(16))), numbers)
    return builder.bitcast(call_named(builder, SHUFFLE, VECTOR, builder.bitcast(value, VECTOR), order), value.type)


def _store_part(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, width: int) -> None:
    """Stores the first `width` lanes."""
    part = builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(I32, width), list(range(width))))
    pointer = builder.inttoptr(address, ir.PointerType(ir.IntType(8)))
    builder.store(part, builder.bitcast(pointer, part.type.as_pointer()), align=1)
