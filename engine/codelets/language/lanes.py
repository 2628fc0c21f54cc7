"""Values of HLO element types as SIMD lanes in LLVM IR: types, constants, loads, stores.

In registers a pred is an i1 and a 16-bit float is an f32 of the same value; in memory they take one and two bytes.
Every value is a vector of `width` lanes, or a scalar when width is 1. Complex values are vectors of twice as many
floats: real and imaginary parts alternate, as in memory, where a complex value moves as one wide integer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.ir.shape import NUMPY_TYPES
from engine.machine_code.first_lanes import LANES, MOST_BYTES, load_first, store_first
from engine.machine_code.llvm import BFloat, Splat, call_named, ir
from engine.machine_code.processor import rounds_to_bf16

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
HALF, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()

REGISTER_TYPES: dict[str, ir.Type] = {
    "pred": I1,
    **{f"{sign}{bits}": ir.IntType(bits) for sign in "su" for bits in (8, 16, 32, 64)},
    "f16": F32,
    "bf16": F32,
    "f32": F32,
    "f64": F64,
}
HALF_TYPES = ("f16", "bf16")
F16_IN_F32 = "f16 in f32"
"""The element type of float32 in memory that is rounded to f16 where it is read."""
MEMORY_TYPES = REGISTER_TYPES | {"pred": I8, "f16": I16, "bf16": I16, "c64": I64, "c128": ir.IntType(128)}
MEMORY_TYPES |= {F16_IN_F32: F32}
ITEM_BYTES = {element_type: dtype.itemsize for element_type, dtype in NUMPY_TYPES.items()} | {F16_IN_F32: 4}
PART_TYPES = {"c64": "f32", "c128": "f64"}
"""The element type of a complex type's real and imaginary part."""
SIDE_BY_SIDE = 4
"""Vectors that a nest reduces side by side: 256 bytes with AVX-512, on which this was timed."""


def is_float(element_type: str) -> bool:
    """Whether lanes of this type are compared and added as floats."""
    return element_type in ("f16", "bf16", "f32", "f64")


def is_complex(element_type: str) -> bool:
    """Whether lanes of this type are pairs of floats."""
    return element_type in PART_TYPES


def is_signed(element_type: str) -> bool:
    """Whether the type is a signed integer."""
    return element_type[0] == "s"


def intrinsic_suffix(kind: ir.Type) -> str:
    """The mangled type name that LLVM appends to an overloaded intrinsic."""
    is_vector = isinstance(kind, ir.VectorType)
    return f"v{kind.count}{kind.element.intrinsic_name}" if is_vector else kind.intrinsic_name


class Lanes:
    """An LLVM IR builder that operates on `width` lanes at once."""

    def __init__(self, builder: ir.IRBuilder, width: int) -> None:
        self.builder = builder
        self.width = width

    def of(self, scalar: ir.Type) -> ir.Type:
        return scalar if self.width == 1 else ir.VectorType(scalar, self.width)

    def type(self, element_type: str) -> ir.Type:
        if is_complex(element_type):
            return ir.VectorType(REGISTER_TYPES[PART_TYPES[element_type]], 2 * self.width)
        return self.of(REGISTER_TYPES[element_type])

    def splat_constant(self, scalar: ir.Type, value: Any) -> ir.Constant:
        return ir.Constant(scalar, value) if self.width == 1 else Splat(self.of(scalar), value)

    def constant(self, element_type: str, value: Any) -> ir.Constant:
        """The value in all lanes, rounded to the element type."""
        if is_complex(element_type):
            return ir.Constant(self.type(element_type), [float(value.real), float(value.imag)] * self.width)
        register = REGISTER_TYPES[element_type]
        if is_float(element_type):
            return self.splat_constant(register, float(value))
        return self.splat_constant(register, int(value))

    def splat(self, scalar: ir.Value) -> ir.Value:
        """A scalar register value copied to all lanes."""
        if self.width == 1:
            return scalar
        undefined = ir.Constant(self.of(scalar.type), ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, Splat(ir.VectorType(I32, self.width), 0))

    def parts(self, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The real and imaginary parts of complex lanes."""
        if self.width == 1:
            real, imaginary = (self.builder.extract_element(value, ir.Constant(I32, k)) for k in (0, 1))
        else:
            real, imaginary = (self.shuffled(value, value, range(k, 2 * self.width, 2)) for k in (0, 1))
        return real, imaginary

    def paired(self, real: ir.Value, imaginary: ir.Value) -> ir.Value:
        """Complex lanes from their real and imaginary parts."""
        if self.width == 1:
            value = ir.Constant(ir.VectorType(real.type, 2), ir.Undefined)
            value = self.builder.insert_element(value, real, ir.Constant(I32, 0))
            return self.builder.insert_element(value, imaginary, ir.Constant(I32, 1))
        return self.shuffled(real, imaginary, [k for lane in range(self.width) for k in (lane, self.width + lane)])

    def shuffled(self, first: ir.Value, second: ir.Value, positions: Iterable[int]) -> ir.Value:
        """Shuffles the concatenation of two vectors, with `positions` as the indices."""
        chosen = list(positions)
        return self.builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(chosen)), chosen))

    def select(self, mask: ir.Value, on_true: ir.Value, on_false: ir.Value) -> ir.Value:
        """on_true in the lanes of the mask, else on_false; for any element type."""
        if self.width > 1 and on_true.type.count == 2 * self.width:
            mask = self.shuffled(mask, mask, [lane for lane in range(self.width) for _ in range(2)])
        return self.builder.select(mask, on_true, on_false)

    def lane_numbers(self, scalar: ir.IntType) -> ir.Constant:
        if self.width == 1:
            return ir.Constant(scalar, 0)
        return ir.Constant(self.of(scalar), list(range(self.width)))

    def first(self, count: ir.Value) -> ir.Value:
        """A mask of the first `count` (i64) lanes."""
        return self.builder.icmp_signed("<", self.lane_numbers(I64), self.splat(count))

    def call(self, name: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
        """Calls an LLVM intrinsic or an external function by its full name."""
        return call_named(self.builder, name, result, *arguments)

    def intrinsic(self, name: str, *arguments: ir.Value) -> ir.Value:
        """An intrinsic overloaded on the type of its first argument, which it returns."""
        kind = arguments[0].type
        return self.call(f"llvm.{name}.{intrinsic_suffix(kind)}", kind, list(arguments))

    def each_lane(self, function: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
        """Calls a scalar C function once for each lane."""
        if self.width == 1:
            return self.call(function, result, arguments)
        vector = ir.Constant(self.of(result), ir.Undefined)
        for lane in range(self.width):
            at = ir.Constant(I32, lane)
            value = self.call(function, result, [self.builder.extract_element(a, at) for a in arguments])
            vector = self.builder.insert_element(vector, value, at)
        return vector

    def address_of(self, address: ir.Value, kind: ir.Type) -> ir.Value:
        to_pointer = self.builder.bitcast if isinstance(address.type, ir.PointerType) else self.builder.inttoptr
        return to_pointer(address, kind.as_pointer())

    def element(self, address: ir.Value, element_type: str, index: ir.Value) -> ir.Value:
        """A pointer to element `index` of an array at an address."""
        return self.builder.gep(self.address_of(address, MEMORY_TYPES[element_type]), [index])

    def load(
        self, address: ir.Value, element_type: str, mask: ir.Value | None = None, is_first: bool = True
    ) -> ir.Value:
        """Loads contiguous elements; lanes outside the mask are zero. With `is_first` its lanes are the first ones."""
        memory = self.of(MEMORY_TYPES[element_type])
        pointer = self.address_of(address, memory)
        if mask is None or self.width == 1:
            raw = self.builder.load(pointer, align=ITEM_BYTES[element_type])
        elif self._counts(mask, is_first) and ITEM_BYTES[element_type] <= 2:
            raw = load_first(self.builder, self.builder.ptrtoint(pointer, I64), self._count(mask), memory.element)
        elif mask.type.element == I32:
            raw = self.call("llvm.x86.avx.maskload.ps.256", memory, [pointer, mask])
        else:
            suffix = intrinsic_suffix(memory)
            zero = self.splat_constant(MEMORY_TYPES[element_type], 0)
            align = ir.Constant(I32, ITEM_BYTES[element_type])
            raw = self.call(f"llvm.masked.load.{suffix}.p0", memory, [pointer, align, mask, zero])
        return self.from_memory(raw, element_type)

    def load_splat(self, address: ir.Value, element_type: str) -> ir.Value:
        """Loads one element into all lanes."""
        raw = self.builder.load(self.address_of(address, MEMORY_TYPES[element_type]), align=ITEM_BYTES[element_type])
        if is_complex(element_type):
            return self.from_memory(self.splat(raw), element_type)
        one = Lanes(self.builder, 1)
        return self.splat(one.from_memory(raw, element_type))

    def load_strided(self, address: ir.Value, stride: ir.Value, element_type: str, mask: ir.Value | None) -> ir.Value:
        """Loads elements `stride` bytes apart; lanes outside the mask read the first element again."""
        if self.width == 1:
            return self.load(address, element_type)
        scalar = MEMORY_TYPES[element_type]
        offsets = self.builder.mul(self.lane_numbers(I64), self.splat(stride))
        if mask is not None:
            offsets = self.builder.select(mask, offsets, self.splat_constant(I64, 0))
        vector = ir.Constant(self.of(scalar), ir.Undefined)
        for lane in range(self.width):
            at = ir.Constant(I32, lane)
            where = self.builder.add(address, self.builder.extract_element(offsets, at))
            value = self.builder.load(self.address_of(where, scalar), align=ITEM_BYTES[element_type])
            vector = self.builder.insert_element(vector, value, at)
        return self.from_memory(vector, element_type)

    def store(
        self,
        value: ir.Value,
        address: ir.Value,
        element_type: str,
        mask: ir.Value | None = None,
        is_first: bool = True,
    ) -> None:
        """Stores contiguous elements, from the lanes in the mask. With `is_first` its lanes are the first ones."""
        raw = self.to_memory(value, element_type)
        pointer = self.address_of(address, raw.type)
        align = ITEM_BYTES[element_type]
        if mask is None or self.width == 1:
            self.builder.store(raw, pointer, align=align)
        elif self._counts(mask, is_first) and align <= MOST_BYTES:
            store_first(self.builder, raw, self.builder.ptrtoint(pointer, I64), self._count(mask))
        else:
            suffix = intrinsic_suffix(raw.type)
            arguments = [raw, pointer, ir.Constant(I32, align), mask]
            self.call(f"llvm.masked.store.{suffix}.p0", VOID, arguments)

    def _counts(self, mask: ir.Value, is_first: bool) -> bool:
        """Whether AVX2 accesses as many lanes as the mask has; one of int32 is that of `vector.lane_mask`."""
        return self.width == LANES and (is_first or mask.type.element == I32)

    def _count(self, mask: ir.Value) -> ir.Value:
        """The number of lanes in a mask, as int32."""
        if mask.type.element == I32:
            return self.builder.neg(self.builder.extract_element(mask, I32(0)))
        return self.builder.zext(Lanes(self.builder, 1).intrinsic("ctpop", self.builder.bitcast(mask, I8)), I32)

    def store_strided(
        self, value: ir.Value, address: ir.Value, stride: ir.Value, element_type: str, mask: ir.Value | None
    ) -> None:
        """Stores elements `stride` bytes apart, from the lanes in the mask."""
        raw = self.to_memory(value, element_type)
        if self.width == 1:
            self.builder.store(raw, self.address_of(address, raw.type), align=ITEM_BYTES[element_type])
            return
        for lane in range(self.width):
            at = ir.Constant(I32, lane)
            where = self.builder.add(address, self.builder.mul(stride, ir.Constant(I64, lane)))
            scalar = self.builder.extract_element(raw, at)
            pointer = self.address_of(where, scalar.type)
            if mask is None:
                self.builder.store(scalar, pointer, align=ITEM_BYTES[element_type])
            else:
                with self.builder.if_then(self.builder.extract_element(mask, at)):
                    self.builder.store(scalar, pointer, align=ITEM_BYTES[element_type])

    def from_memory(self, raw: ir.Value, element_type: str) -> ir.Value:
        if element_type == "pred":
            return self.builder.icmp_unsigned("!=", raw, ir.Constant(raw.type, None))
        if element_type == "f16":
            return self.builder.fpext(self.builder.bitcast(raw, self.of(HALF)), self.of(F32))
        if element_type == F16_IN_F32:
            return self.rounded(raw, "f16")
        if element_type == "bf16":
            wide = self.builder.zext(raw, self.of(I32))
            return self.builder.bitcast(self.builder.shl(wide, self.splat_constant(I32, 16)), self.of(F32))
        return self.builder.bitcast(raw, self.type(element_type)) if is_complex(element_type) else raw

    def to_memory(self, value: ir.Value, element_type: str) -> ir.Value:
        if element_type == "pred":
            return self.builder.zext(value, self.of(I8))
        if element_type == "f16":
            return self.builder.bitcast(self.builder.fptrunc(value, self.of(HALF)), self.of(I16))
        if element_type == "bf16":
            bits = self.builder.bitcast(value, self.of(I32))
            return self.builder.trunc(self.builder.lshr(bits, self.splat_constant(I32, 16)), self.of(I16))
        return self.builder.bitcast(value, self.of(MEMORY_TYPES[element_type])) if is_complex(element_type) else value

    def rounded(
        self, value: ir.Value, element_type: str, is_normal: bool = False, has_short_nan: bool = False
    ) -> ir.Value:
        """An f32 rounded to a 16-bit float type (nearest, ties to even); values of other types are returned as is.

        With `is_normal` a denormal number may become zero, as it does in any arithmetic under the executor. With
        `has_short_nan` the lower half of a NaN is zero, as that of bf16 and of results of arithmetic on bf16.
        """
        builder = self.builder
        if element_type == "f16":
            return builder.fpext(builder.fptrunc(value, self.of(HALF)), self.of(F32))
        if element_type != "bf16":
            return value
        if is_normal and rounds_to_bf16():
            return self.from_memory(builder.bitcast(builder.fptrunc(value, self.of(BFloat())), self.of(I16)), "bf16")
        bits = builder.bitcast(value, self.of(I32))
        odd = builder.and_(builder.lshr(bits, self.splat_constant(I32, 16)), self.splat_constant(I32, 1))
        up = builder.add(bits, builder.add(odd, self.splat_constant(I32, 0x7FFF)))
        kept = builder.and_(up, self.splat_constant(I32, 0xFFFF0000 - (1 << 32)))
        if has_short_nan:
            return builder.bitcast(kept, self.of(F32))
        quiet = self.splat_constant(I32, 0x7FC00000)
        nan = builder.fcmp_unordered("uno", value, value)
        return builder.bitcast(builder.select(nan, quiet, kept), self.of(F32))


def rounded_constant(element_type: str, value: Any) -> Any:
    """A Python number rounded to the element type."""
    if is_complex(element_type):
        return complex(NUMPY_TYPES[element_type].type(value))
    return float(NUMPY_TYPES[element_type].type(value)) if is_float(element_type) else value
