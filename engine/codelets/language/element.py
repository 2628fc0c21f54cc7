"""Elements of any type in memory: loaded and stored at addresses, and converted."""

from __future__ import annotations

from typing import Any

from engine.codelets.language.lazy import errors, types
from engine.codelets.language.memory import POINTER, Emitter, intrinsic
from engine.codelets.language.vector import F16_IN_F32, HALF_TYPES, narrowed, widened
from engine.machine_code.llvm import ir

NUMBA_NAMES = {
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float32",
    "bf16": "float32",
    F16_IN_F32: "float32",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
"""The Numba types in which elements are computed."""
BYTES = {"f16": 2, "bf16": 2, "c64": 8, "c128": 16} | {
    name: int(name[1:]) // 8 for name in ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f32", "f64")
}


def storage_name(element_type: str) -> str:
    """The name of the Numba type that an element is loaded as."""
    return "uint16" if element_type in HALF_TYPES else NUMBA_NAMES[element_type]


def _element(kind: types.Type) -> tuple[str, types.Type]:
    """The element type named by a literal argument, and the Numba type of its arithmetic."""
    if not isinstance(kind, types.StringLiteral):
        raise errors.TypingError(f"Expected a literal element type. Received: {kind}.")
    return kind.literal_value, getattr(types, NUMBA_NAMES[kind.literal_value])


@intrinsic
def decode(typing_context: Any, stored: types.Type, kind: types.Type, number: types.Type) -> tuple[Any, Emitter]:
    """A stored element, converted to the element type that `number` names."""
    name, computed = _element(kind)
    _, result = _element(number)

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        return context.cast(builder, widened(builder, arguments[0], name), computed, result)

    return result(getattr(types, storage_name(name)), kind, number), emit


@intrinsic
def load_element(typing_context: Any, address: types.Type, kind: types.Type, number: types.Type) -> tuple[Any, Emitter]:
    """The element at an address, converted to the element type that `number` names."""
    name, computed = _element(kind)
    _, result = _element(number)

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        stored = context.get_data_type(getattr(types, storage_name(name)))
        source = builder.inttoptr(arguments[0], POINTER)
        value = builder.load(source, align=min(BYTES.get(name, 4), 8), typ=stored)
        return context.cast(builder, widened(builder, value, name), computed, result)

    return result(types.int64, kind, number), emit


@intrinsic
def store_element(typing_context: Any, address: types.Type, kind: types.Type, value: types.Type) -> tuple[Any, Emitter]:
    """Stores an element of the named type; float32 is rounded to the nearest f16 or bf16, ties to even."""
    name, computed = _element(kind)

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        value = narrowed(builder, arguments[2], name)
        builder.store(value, builder.inttoptr(arguments[0], POINTER), align=min(BYTES[name], 8))
        return context.get_dummy_value()

    return types.void(types.int64, kind, computed), emit
