"""The indexed contraction for element types other than float32, as plain loops."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir

from engine.codelets.build import Codelet, inner
from engine.codelets.contract import contract_f32, contract_scratch_bytes, field, operands
from engine.codelets.contract_fields import Field
from engine.codelets.contract_half import contract_half, contract_half_scratch_bytes
from engine.codelets.half_vectors import HALF_TYPES
from engine.codelets.lazy import errors, numba, types
from engine.codelets.memory import POINTER, Emitter, intrinsic, load_i64, pointer
from engine.errors import UnsupportedOperation
from engine.machine_code.abi import RESERVED_SCRATCH

HALF = ir.HalfType()
F32 = ir.FloatType()
I16, I32 = ir.IntType(16), ir.IntType(32)

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
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
BYTES = {"f16": 2, "bf16": 2, "c64": 8, "c128": 16} | {
    name: int(name[1:]) // 8 for name in ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f32", "f64")
}
COLUMN_BLOCK = 256  # columns summed at a time, in scratch. Chosen by hand


def storage_name(element_type: str) -> str:
    """The name of the Numba type that an element is loaded as."""
    return "uint16" if element_type in ("f16", "bf16") else NUMBA_NAMES[element_type]


def _element(kind: types.Type) -> tuple[str, types.Type]:
    """The element type named by a literal argument, and the Numba type of its arithmetic."""
    if not isinstance(kind, types.StringLiteral):
        raise errors.TypingError(f"Expected a literal element type. Received: {kind}.")
    return kind.literal_value, getattr(types, NUMBA_NAMES[kind.literal_value])


def _widen(builder: ir.IRBuilder, stored: ir.Value, name: str) -> ir.Value:
    """A stored f16 or bf16 (16 bits) as float32; other types are returned as stored."""
    if name == "f16":
        return builder.fpext(builder.bitcast(stored, HALF), F32)
    if name == "bf16":
        return builder.bitcast(builder.shl(builder.zext(stored, I32), I32(16)), F32)
    return stored


@intrinsic(prefer_literal=True)
def decode(typing_context: Any, stored: types.Type, kind: types.Type, number: types.Type) -> tuple[Any, Emitter]:
    """A stored element, converted to the element type that `number` names."""
    name, computed = _element(kind)
    _, result = _element(number)

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        return context.cast(builder, _widen(builder, arguments[0], name), computed, result)

    return result(getattr(types, storage_name(name)), kind, number), emit


@intrinsic(prefer_literal=True)
def load_element(typing_context: Any, address: types.Type, kind: types.Type, number: types.Type) -> tuple[Any, Emitter]:
    """The element at an address, converted to the element type that `number` names."""
    name, computed = _element(kind)
    _, result = _element(number)

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        stored = context.get_data_type(getattr(types, storage_name(name)))
        source = builder.inttoptr(arguments[0], POINTER)
        value = builder.load(source, align=min(BYTES[name], 8), typ=stored)
        return context.cast(builder, _widen(builder, value, name), computed, result)

    return result(types.int64, kind, number), emit


@intrinsic(prefer_literal=True)
def store_element(typing_context: Any, address: types.Type, kind: types.Type, value: types.Type) -> tuple[Any, Emitter]:
    """Stores an element of the named type; float32 is rounded to the nearest f16 or bf16, ties to even."""
    name, computed = _element(kind)

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        value = arguments[2]
        if name == "f16":
            value = builder.fptrunc(value, HALF)
        if name == "bf16":
            value = _round_to_bfloat16(builder, value)
        builder.store(value, builder.inttoptr(arguments[0], POINTER), align=min(BYTES[name], 8))
        return context.get_dummy_value()

    return types.void(types.int64, kind, computed), emit


def _round_to_bfloat16(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The upper half of the bits, rounded; NaN is quietened instead, as rounding could make it infinite."""
    bits = builder.bitcast(value, I32)
    odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    rounded = builder.add(builder.add(bits, I32(0x7FFF)), odd)
    quiet = builder.or_(bits, I32(0x400000))
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.lshr(builder.select(is_nan, quiet, rounded), I32(16)), I16)


def contract_plain_scratch_bytes() -> int:
    """The bytes of scratch that any codelet of this file needs."""
    return RESERVED_SCRATCH + COLUMN_BLOCK * max(BYTES.values())


def contract_for(element_type: str, result_type: str | None = None) -> Codelet:
    """The contraction codelet of A's and B's element type and C's (by default the same).

    Sums are kept in result_type, those of f16 and bf16 in float32; integers wrap around. The codelet takes
    parameters from `contract_record` with `element_bytes` of the element type, and the scratch of
    `contract_scratch_bytes_for`. The columns of C are contiguous.
    Raises UnsupportedOperation for types that cannot be multiplied.
    """
    result_type = result_type or element_type
    if (element_type, result_type) == ("f32", "f32"):
        return contract_f32
    for name in (element_type, result_type):
        if name not in BYTES:
            raise UnsupportedOperation(
                f"Expected an element type among {', '.join(BYTES)}. Received: a dot of {name}. Convert its operands."
            )
    if element_type[0] == "c" and result_type[0] != "c":
        raise UnsupportedOperation(
            f"Expected a complex result of a dot of {element_type}. Received: {result_type}. Use {element_type}."
        )
    if element_type in HALF_TYPES and result_type in (element_type, "f32"):
        return contract_half(element_type, result_type)
    return _plain_codelet(element_type, result_type)


def contract_scratch_bytes_for(element_type: str, result_type: str | None = None) -> int:
    """The bytes of scratch that `contract_for` of the same types needs."""
    if element_type == "f32" and result_type in (None, "f32"):
        return contract_scratch_bytes()
    if element_type in HALF_TYPES and result_type in (None, element_type, "f32"):
        return contract_half_scratch_bytes()
    return contract_plain_scratch_bytes()


@inner
def unit_of(parameters: int, unit: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Base addresses a, b, c (of the batch and the split), and the unit's ranges of rows, columns and k."""
    rows_per_unit = field(parameters, Field.ROWS_PER_UNIT)
    columns_per_unit = field(parameters, Field.COLUMNS_PER_UNIT)
    k_per_unit = field(parameters, Field.K_PER_UNIT)
    row = unit % field(parameters, Field.ROW_BLOCKS) * rows_per_unit
    rest = unit // field(parameters, Field.ROW_BLOCKS)
    column = rest % field(parameters, Field.COLUMN_BLOCKS) * columns_per_unit
    rest = rest // field(parameters, Field.COLUMN_BLOCKS)
    split = rest % field(parameters, Field.K_SPLITS)
    batch = rest // field(parameters, Field.K_SPLITS)
    a, b, c = operands(parameters, split, batch)
    row_end = min(row + rows_per_unit, field(parameters, Field.ROWS))
    column_end = min(column + columns_per_unit, field(parameters, Field.COLUMNS))
    k = split * k_per_unit
    return a, b, c, row, row_end, column, column_end, k, min(k + k_per_unit, field(parameters, Field.K))


@cache
def _plain_codelet(kind: str, result: str) -> Codelet:
    """The codelet of these types. Its closure holds text and numbers only, as the cache key is made of their repr."""
    storage = storage_name(kind)
    number = NUMBA_NAMES[result]
    element_bytes, result_bytes = BYTES[kind], BYTES[result]

    def contract_plain(parameters: int, lo: int, hi: int, scratch: int) -> None:
        stride_b = field(parameters, Field.STRIDE_B)
        accumulate = field(parameters, Field.ACCUMULATE)
        sums = numba.carray(pointer(scratch + RESERVED_SCRATCH, number), COLUMN_BLOCK)
        for unit in range(lo, hi):
            a, b, c, row, row_end, column, column_end, k, k_end = unit_of(parameters, unit)
            for m in range(row, row_end):
                a_row = a + load_i64(field(parameters, Field.ROW_A) + 8 * m)
                c_row = c + load_i64(field(parameters, Field.ROW_C) + 8 * m)
                for n in range(column, column_end, COLUMN_BLOCK):
                    width = min(COLUMN_BLOCK, column_end - n)
                    for i in range(width):
                        sums[i] = 0
                    for j in range(k, k_end):
                        offset_a = load_i64(field(parameters, Field.OFFSET_A) + 8 * j)
                        factor = load_element(a_row + offset_a, kind, result)
                        b_row = b + load_i64(field(parameters, Field.OFFSET_B) + 8 * j) + n * stride_b
                        if stride_b == element_bytes:
                            b_array = numba.carray(pointer(b_row, storage), width)
                            for i in range(width):
                                sums[i] += factor * decode(b_array[i], kind, result)
                        else:
                            for i in range(width):
                                sums[i] += factor * load_element(b_row + i * stride_b, kind, result)
                    for i in range(width):
                        target = c_row + (n + i) * result_bytes
                        if accumulate != 0:
                            sums[i] += load_element(target, result, result)
                        store_element(target, result, sums[i])

    return Codelet(contract_plain, f"contract_{kind}_{result}")
