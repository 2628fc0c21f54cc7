"""Vectors of halves: read as float32, and written rounded to the nearest, ties to even."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from engine.codelets import vector
from engine.codelets.lazy import types
from engine.codelets.memory import F32, I32, POINTER, VOID, Emitter, intrinsic

HALF, I16 = ir.HalfType(), ir.IntType(16)
HALVES = ("f16", "bf16")
HALF_BYTES = 2


def load_halves(builder: ir.IRBuilder, kind: str, address: ir.Value, mask: ir.Value | None = None) -> ir.Value:
    """lanes() halves as float32; lanes outside the mask are not touched and become 0."""
    pointer, raw = builder.inttoptr(address, POINTER), vector.vector_type(I16)
    if mask is None:
        bits = builder.load(pointer, align=HALF_BYTES, typ=raw)
    else:
        zeros = ir.Constant(raw, [0] * vector.lanes())
        bits = _call(builder, f"llvm.masked.load.v{vector.lanes()}i16.p0", raw, [pointer, I32(2), mask, zeros])
    if kind == "f16":
        return builder.fpext(builder.bitcast(bits, vector.vector_type(HALF)), vector.vector_type(F32))
    wide = builder.shl(builder.zext(bits, vector.vector_type(I32)), _all(I32, 16))
    return builder.bitcast(wide, vector.vector_type(F32))


def store_halves(
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
        _call(builder, f"llvm.masked.store.v{vector.lanes()}i16.p0", VOID, [bits, pointer, I32(2), mask])


def _rounded_to_bfloat16(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The upper half of the bits, rounded; NaN becomes quiet instead, for rounding could make it infinite."""
    bits = builder.bitcast(value, vector.vector_type(I32))
    odd = builder.and_(builder.lshr(bits, _all(I32, 16)), _all(I32, 1))
    rounded = builder.add(builder.add(bits, _all(I32, 0x7FFF)), odd)
    quiet = builder.or_(bits, _all(I32, 0x400000))
    kept = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    return builder.trunc(builder.lshr(kept, _all(I32, 16)), vector.vector_type(I16))


def _all(element: ir.IntType, value: int) -> ir.Constant:
    return ir.Constant(vector.vector_type(element), [value] * vector.lanes())


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
    known = builder.module.globals.get(name)
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(known or ir.Function(builder.module, signature, name), arguments)


def _widening(kind: str, masked: bool) -> Any:
    @intrinsic
    def widen(typing_context: Any, source: types.Type, target: types.Type, count: types.Type) -> tuple[Any, Emitter]:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            source, target, count = arguments
            mask = vector.lane_mask(builder, count) if masked else None
            vector.store_vector(builder, load_halves(builder, kind, source, mask), target)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return widen


def _narrowing(kind: str, masked: bool) -> Any:
    @intrinsic
    def narrow(typing_context: Any, source: types.Type, target: types.Type, count: types.Type) -> tuple[Any, Emitter]:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            source, target, count = arguments
            mask = vector.lane_mask(builder, count) if masked else None
            store_halves(builder, kind, vector.load_vector(builder, source), target, mask)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), emit

    return narrow


# (halves, float32, count): lanes() of them, or the first `count`; of float32 a whole vector is always touched.
widen_f16, widen_some_f16 = _widening("f16", False), _widening("f16", True)
widen_bf16, widen_some_bf16 = _widening("bf16", False), _widening("bf16", True)
# (float32, halves, count)
narrow_f16, narrow_some_f16 = _narrowing("f16", False), _narrowing("f16", True)
narrow_bf16, narrow_some_bf16 = _narrowing("bf16", False), _narrowing("bf16", True)


def _widening_element(kind: str) -> Any:
    @intrinsic
    def widen_element(typing_context: Any, address: types.Type) -> tuple[Any, Emitter]:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            bits = builder.load(builder.inttoptr(arguments[0], POINTER), align=HALF_BYTES, typ=I16)
            if kind == "f16":
                return builder.fpext(builder.bitcast(bits, HALF), F32)
            return builder.bitcast(builder.shl(builder.zext(bits, I32), I32(16)), F32)

        return types.float32(types.int64), emit

    return widen_element


element_f16, element_bf16 = _widening_element("f16"), _widening_element("bf16")
