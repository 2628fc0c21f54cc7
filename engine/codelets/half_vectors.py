"""Vectors of 16-bit floats: read as float32, and written rounded to nearest, ties to even."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from engine.codelets import vector
from engine.codelets.lazy import types
from engine.codelets.memory import F32, I32, I64, POINTER, VOID, Emitter, intrinsic
from engine.machine_code.processor import lanes

HALF, I16 = ir.HalfType(), ir.IntType(16)
HALF_TYPES = ("f16", "bf16")
F16, BF16 = 0, 1  # indices in HALF_TYPES
HALF_BYTES = 2


def load_half(builder: ir.IRBuilder, kind: str, address: ir.Value, mask: ir.Value | None = None) -> ir.Value:
    """Loads lanes() 16-bit floats as float32; lanes outside the mask are not accessed and become 0."""
    pointer, raw = builder.inttoptr(address, POINTER), vector.vector_type(I16)
    if mask is None:
        bits = builder.load(pointer, align=HALF_BYTES, typ=raw)
    else:
        zeros = ir.Constant(raw, [0] * lanes())
        bits = _call(builder, f"llvm.masked.load.v{lanes()}i16.p0", raw, [pointer, I32(2), mask, zeros])
    if kind == "f16":
        return builder.fpext(builder.bitcast(bits, vector.vector_type(HALF)), vector.vector_type(F32))
    wide = builder.shl(builder.zext(bits, vector.vector_type(I32)), _all(I32, 16))
    return builder.bitcast(wide, vector.vector_type(F32))


def store_half(
    builder: ir.IRBuilder, kind: str, value: ir.Value, address: ir.Value, mask: ir.Value | None = None
) -> None:
    """Stores the lanes of the mask, rounded; NaN stays NaN."""
    if kind == "f16":
        bits = builder.bitcast(builder.fptrunc(value, vector.vector_type(HALF)), vector.vector_type(I16))
    else:
        bits = _rounded_to_bfloat16(builder, value)
    pointer = builder.inttoptr(address, POINTER)
    if mask is None:
        builder.store(bits, pointer, align=HALF_BYTES)
    else:
        _call(builder, f"llvm.masked.store.v{lanes()}i16.p0", VOID, [bits, pointer, I32(2), mask])


def _rounded_to_bfloat16(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The upper half of the bits, rounded; NaN is quietened instead, as rounding could make it infinite."""
    bits = builder.bitcast(value, vector.vector_type(I32))
    odd = builder.and_(builder.lshr(bits, _all(I32, 16)), _all(I32, 1))
    rounded = builder.add(builder.add(bits, _all(I32, 0x7FFF)), odd)
    quiet = builder.or_(bits, _all(I32, 0x400000))
    kept = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    return builder.trunc(builder.lshr(kept, _all(I32, 16)), vector.vector_type(I16))


def _all(element: ir.IntType, value: int) -> ir.Constant:
    return ir.Constant(vector.vector_type(element), [value] * lanes())


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
    known = builder.module.globals.get(name)
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(known or ir.Function(builder.module, signature, name), arguments)


def by_kind(builder: ir.IRBuilder, kind: ir.Value, write: Callable[[str], None]) -> None:
    """Emits `write(name)` for each of HALF_TYPES, under a test of `kind`: a constant in every codelet."""
    with builder.if_else(builder.icmp_signed("==", kind, I64(F16))) as (f16, bf16):
        with f16:
            write("f16")
        with bf16:
            write("bf16")


def _widening(masked: bool) -> Any:
    @intrinsic
    def widen(
        typing_context: Any, kind: types.Type, source: types.Type, target: types.Type, count: types.Type
    ) -> tuple[Any, Emitter]:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            kind, source, target, count = arguments
            mask = vector.lane_mask(builder, count) if masked else None

            def write(name: str) -> None:
                vector.store_vector(builder, load_half(builder, name, source, mask), target)

            by_kind(builder, kind, write)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return widen


def _narrowing(masked: bool) -> Any:
    @intrinsic
    def narrow(
        typing_context: Any, kind: types.Type, source: types.Type, target: types.Type, count: types.Type
    ) -> tuple[Any, Emitter]:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            kind, source, target, count = arguments
            mask = vector.lane_mask(builder, count) if masked else None

            def write(name: str) -> None:
                store_half(builder, name, vector.load_vector(builder, source), target, mask)

            by_kind(builder, kind, write)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return narrow


# (kind, 16-bit source, float32 target, count): lanes() elements, or the first `count`; whole vectors of float32.
widen, widen_some = _widening(False), _widening(True)
# (kind, float32 source, 16-bit target, count)
narrow, narrow_some = _narrowing(False), _narrowing(True)


@intrinsic
def element(typing_context: Any, kind: types.Type, address: types.Type) -> tuple[Any, Emitter]:
    """The 16-bit float at an address as float32."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        bits = builder.load(builder.inttoptr(arguments[1], POINTER), align=HALF_BYTES, typ=I16)
        f16 = builder.fpext(builder.bitcast(bits, HALF), F32)
        bf16 = builder.bitcast(builder.shl(builder.zext(bits, I32), I32(16)), F32)
        return builder.select(builder.icmp_signed("==", arguments[0], I64(F16)), f16, bf16)

    return types.float32(types.int64, types.int64), emit
