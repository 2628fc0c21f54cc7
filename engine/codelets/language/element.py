"""Elements of any type in memory: loaded and stored at addresses, and converted."""

from __future__ import annotations

from typing import Any

from engine.codelets.language.intrinsic import typed_intrinsic
from engine.codelets.language.lanes import F16_IN_F32, HALF_TYPES, ITEM_BYTES, Lanes
from engine.codelets.language.memory import POINTER, Emitter
from engine.ir.shape import NUMPY_TYPES
from engine.machine_code.llvm import ir

NUMBA_NAMES = {name: dtype.name for name, dtype in NUMPY_TYPES.items() if name != "pred"} | dict.fromkeys(
    (*HALF_TYPES, F16_IN_F32), "float32"
)
"""The Numba types in which elements are computed."""


def storage_name(element_type: str) -> str:
    """The name of the Numba type that an element is loaded as."""
    return "uint16" if element_type in HALF_TYPES else NUMBA_NAMES[element_type]


def _type_of(name: str) -> Any:
    """The Numba type of a name."""
    from numba.core import types

    return getattr(types, name)


@typed_intrinsic
def decode(typing_context: Any, stored: Any, kind: Any, number: Any) -> tuple[Any, Emitter]:
    """A stored element, converted to the element type that `number` names."""
    computed, result = (_type_of(NUMBA_NAMES[each.literal_value]) for each in (kind, number))

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        name, value = kind.literal_value, arguments[0]
        if name in (*HALF_TYPES, F16_IN_F32):
            value = Lanes(builder, 1).from_memory(value, name)
        return context.cast(builder, value, computed, result)

    return result(_type_of(storage_name(kind.literal_value)), kind, number), emit


@typed_intrinsic
def load_element(typing_context: Any, address: Any, kind: Any, number: Any) -> tuple[Any, Emitter]:
    """The element at an address, converted to the element type that `number` names."""
    name = kind.literal_value
    stored = _type_of(storage_name(name))
    signature, converted = decode.definition(typing_context, stored, kind, number)

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        source, size = builder.inttoptr(arguments[0], POINTER), min(ITEM_BYTES.get(name, 4), 8)
        value = builder.load(source, align=size, typ=context.get_data_type(stored))
        return converted(context, builder, signature, (value,))

    return signature.return_type(address, kind, number), emit


@typed_intrinsic
def store_element(typing_context: Any, address: Any, kind: Any, value: Any) -> tuple[Any, Emitter]:
    """Stores an element of the named type; float32 is rounded to the nearest f16 or bf16, ties to even."""
    name = kind.literal_value

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        value, one = arguments[2], Lanes(builder, 1)
        if name in HALF_TYPES:
            value = one.to_memory(one.rounded(value, name, is_normal=True), name)
        builder.store(value, builder.inttoptr(arguments[0], POINTER), align=min(ITEM_BYTES[name], 8))
        return context.get_dummy_value()

    return _type_of("void")(address, kind, _type_of(NUMBA_NAMES[name])), emit


@typed_intrinsic
def conjugate(typing_context: Any, value: Any) -> tuple[Any, Emitter]:
    """The conjugate of a complex number; a real one as it is."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        if not hasattr(value, "underlying_float"):
            return arguments[0]
        number = context.make_complex(builder, value, value=arguments[0])
        number.imag = builder.fneg(number.imag)
        return number._getvalue()

    return value(value), emit
