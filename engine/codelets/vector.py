"""LLVM instructions on vectors of float32 of this processor's width."""

from __future__ import annotations

from llvmlite import ir

from engine.codelets.memory import F32, I32, I64, POINTER, VOID
from engine.machine_code.processor import lanes

BIT = ir.IntType(1)


def vector_type(element: ir.Type = F32) -> ir.VectorType:
    """A vector of lanes() elements."""
    return ir.VectorType(element, lanes())


def zeros() -> ir.Constant:
    """A vector of zeros."""
    return ir.Constant(vector_type(), [0.0] * lanes())


def splat(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    """A vector with the scalar in all lanes."""
    undefined = ir.Constant(vector_type(scalar.type), ir.Undefined)
    first = builder.insert_element(undefined, scalar, I32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(vector_type(I32), [0] * lanes()))


def lane_mask(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    """A mask of the lanes below an int64 count."""
    numbers = ir.Constant(vector_type(I64), list(range(lanes())))
    return builder.icmp_signed("<", numbers, splat(builder, count))


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
    full_name = f"llvm.{name}.v{lanes()}f32" + (".p0" if "masked" in name else "")
    known = builder.module.globals.get(full_name)
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(known or ir.Function(builder.module, signature, full_name), arguments)


def multiply_add(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once where the processor supports that."""
    return _call(builder, "fmuladd", vector_type(), [a, b, c])


def load_vector(builder: ir.IRBuilder, address: ir.Value, mask: ir.Value | None = None) -> ir.Value:
    """Loads a vector from an int64 address; lanes outside the mask are not accessed and become 0."""
    pointer = builder.inttoptr(address, POINTER)
    if mask is None:
        return builder.load(pointer, align=4, typ=vector_type())
    return _call(builder, "masked.load", vector_type(), [pointer, I32(4), mask, zeros()])


def store_vector(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, mask: ir.Value | None = None) -> None:
    """Stores a vector to an int64 address; lanes outside the mask are not accessed."""
    pointer = builder.inttoptr(address, POINTER)
    if mask is None:
        builder.store(value, pointer, align=4)
    else:
        _call(builder, "masked.store", VOID, [value, pointer, I32(4), mask])
