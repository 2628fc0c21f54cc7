"""Intrinsics: memory at integer addresses, calls by address, atomics, the floating-point unit's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.codelets.language.intrinsic import intrinsic, typed_intrinsic
from engine.machine_code.llvm import call_named, ir
from engine.machine_code.processor import ARM, X86

I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
VOID = ir.VoidType()
POINTER = ir.PointerType()

FLUSH_TO_ZERO = 0x8040 if X86 else 1 << 24 if ARM else 0  # FTZ | DAZ, or FZ

Emitter = Callable[[Any, ir.IRBuilder, Any, tuple[ir.Value, ...]], Any]


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """Calls LLVM's intrinsic `llvm.<name>`."""
    return call_named(builder, f"llvm.{name}", result, *arguments)


def loaded_i64(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """The int64 at an address."""
    return builder.load(builder.inttoptr(address, POINTER), align=8, typ=I64)


def places(builder: ir.IRBuilder, base: ir.Value, table: ir.Value, count: int) -> list[ir.Value]:
    """base + table[i], i < count, of a table of int64."""
    return [builder.add(base, loaded_i64(builder, builder.add(table, I64(8 * i)))) for i in range(count)]


def prefetch_at(builder: ir.IRBuilder, address: ir.Value, locality: int = 3, writes: bool = False) -> None:
    """Prefetches a cache line, by LLVM's degree of locality: 3 for the first-level cache, 2 for the second."""
    call(builder, "prefetch.p0", VOID, builder.inttoptr(address, POINTER), I32(int(writes)), I32(locality), I32(1))


def _load(name: str, kind: ir.Type, size: int) -> Any:
    def load(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        return builder.load(builder.inttoptr(address, POINTER), align=size, typ=kind)

    return intrinsic(load, {"return": name})


def _store(name: str, size: int) -> Any:
    def store(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
        builder.store(value, builder.inttoptr(address, POINTER), align=size)

    return intrinsic(store, {"value": name})


load_i8, store_i8 = _load("int8", ir.IntType(8), 1), _store("int8", 1)
load_i16, store_i16 = _load("int16", ir.IntType(16), 2), _store("int16", 2)
load_i32, store_i32 = _load("int32", I32, 4), _store("int32", 4)
load_i64, store_i64 = _load("int64", I64, 8), _store("int64", 8)
load_f32, store_f32 = _load("float32", F32, 4), _store("float32", 4)
load_f64, store_f64 = _load("float64", ir.DoubleType(), 8), _store("float64", 8)


@typed_intrinsic
def pointer(typing_context: Any, address: Any, name: Any) -> tuple[Any, Emitter]:
    """`pointer(address, "float32")`: a C pointer to index, by which LLVM can vectorise loops."""
    from numba.core import types

    element = types.CPointer(getattr(types, name.literal_value))

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        return builder.inttoptr(arguments[0], context.get_data_type(element))

    return element(types.int64, name), emit


def _prefetching(locality: int) -> Any:
    @intrinsic
    def prefetch_line(builder: ir.IRBuilder, address: ir.Value) -> None:
        """Prefetches a cache line; any address may be given."""
        prefetch_at(builder, address, locality)

    return prefetch_line


prefetch, prefetch_to_second_level = _prefetching(3), _prefetching(2)


@intrinsic
def call_code(builder: ir.IRBuilder, address: ir.Value, *arguments: ir.Value) -> None:
    """Calls the machine code at an address, such as a codelet's with parameters, lo, hi and scratch."""
    function = ir.FunctionType(VOID, [I64] * len(arguments))
    builder.call(builder.inttoptr(address, function.as_pointer()), arguments)


@intrinsic
def load_acquire(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Loads an int64 with acquire ordering."""
    return builder.load_atomic(builder.inttoptr(address, POINTER), "acquire", 8, typ=I64)


@intrinsic
def store_release(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> None:
    """Stores an int64 with release ordering."""
    # llvmlite supports atomic stores through typed pointers only.
    builder.store_atomic(value, builder.inttoptr(address, I64.as_pointer()), "release", 8)


def _changed(operation: str) -> Any:
    @intrinsic
    def change(builder: ir.IRBuilder, address: ir.Value, value: ir.Value) -> ir.Value:
        """Changes an int64 atomically, sequentially consistent with `fence`; returns its old value."""
        return builder.atomic_rmw(operation, builder.inttoptr(address, I64.as_pointer()), value, "seq_cst")

    return change


fetch_and_add, fetch_and_max = _changed("add"), _changed("max")


@intrinsic
def fence(builder: ir.IRBuilder) -> None:
    """A sequentially consistent fence: earlier stores are visible to other threads before any later load."""
    builder.fence("seq_cst")


@intrinsic
def call_address(builder: ir.IRBuilder, address: ir.Value, *arguments: ir.Value) -> ir.Value:
    """Calls the C function `long f(long, ...)` at an address; an int is passed in the same way."""
    function = ir.FunctionType(I64, [I64] * len(arguments))
    return builder.call(builder.inttoptr(address, function.as_pointer()), arguments)


@intrinsic
def pause(builder: ir.IRBuilder) -> None:
    """Tells the processor that this is a spin-wait loop."""
    if X86:
        call(builder, "x86.sse2.pause", VOID)
    elif ARM:
        call(builder, "aarch64.hint", VOID, I32(1))


def _slot(builder: ir.IRBuilder) -> ir.Value:
    """An int32 on the stack, allocated once for each call of the function."""
    with builder.goto_entry_block():
        return builder.alloca(I32)


@intrinsic
def floating_point_state(builder: ir.IRBuilder) -> ir.Value:
    """Returns this thread's floating-point control register (MXCSR or FPCR); 0 on other processors."""
    if X86:
        slot = _slot(builder)
        call(builder, "x86.sse.stmxcsr", VOID, slot)
        return builder.zext(builder.load(slot, typ=I32), I64)
    if ARM:
        return call(builder, "aarch64.get.fpcr", I64)
    return I64(0)


@intrinsic
def set_floating_point_state(builder: ir.IRBuilder, state: ir.Value) -> None:
    """Restores a state that `floating_point_state` returned in this thread."""
    if X86:
        slot = _slot(builder)
        builder.store(builder.trunc(state, I32), slot)
        call(builder, "x86.sse.ldmxcsr", VOID, slot)
    elif ARM:
        call(builder, "aarch64.set.fpcr", VOID, state)


@intrinsic
def flush_to_zero(builder: ir.IRBuilder, state: ir.Value) -> ir.Value:
    """A floating-point state with denormals, which are 150 times slower, as zero; unchanged except on x86 and ARM."""
    return builder.or_(state, I64(FLUSH_TO_ZERO))


@intrinsic
def with_denormals(builder: ir.IRBuilder, state: ir.Value) -> ir.Value:
    """A floating-point state in which denormals are numbers, as functions of the host expect."""
    return builder.and_(state, I64(~FLUSH_TO_ZERO))
