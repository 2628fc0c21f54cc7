"""Intrinsics: memory at integer addresses, calls by address, atomics, the floating-point unit's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.lazy import cgutils, errors, types
from engine.machine_code.llvm import ir
from engine.machine_code.processor import ARM, X86

I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
VOID = ir.VoidType()
POINTER = ir.PointerType()

FLUSH_TO_ZERO_X86 = 0x8040  # FTZ | DAZ
FLUSH_TO_ZERO_ARM = 1 << 24  # FZ

Emitter = Callable[[Any, ir.IRBuilder, Any, tuple[ir.Value, ...]], Any]


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """Calls LLVM's intrinsic `llvm.<name>`, declared in the module on first use."""
    known = builder.module.globals.get(f"llvm.{name}")
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(known or ir.Function(builder.module, signature, f"llvm.{name}"), arguments)


def _load(name: str) -> Any:
    @intrinsic
    def load(typing_context: Any, address: types.Type) -> tuple[Any, Emitter]:
        element = getattr(types, name)

        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            pointer = builder.inttoptr(arguments[0], POINTER)
            return builder.load(pointer, align=element.bitwidth // 8, typ=context.get_data_type(element))

        return element(types.int64), emit

    return load


def _store(name: str) -> Any:
    @intrinsic
    def store(typing_context: Any, address: types.Type, value: types.Type) -> tuple[Any, Emitter]:
        element = getattr(types, name)

        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            pointer = builder.inttoptr(arguments[0], POINTER)
            builder.store(arguments[1], pointer, align=element.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(types.int64, element), emit

    return store


load_i8, store_i8 = _load("int8"), _store("int8")
load_i16, store_i16 = _load("int16"), _store("int16")
load_i32, store_i32 = _load("int32"), _store("int32")
load_i64, store_i64 = _load("int64"), _store("int64")
load_f32, store_f32 = _load("float32"), _store("float32")
load_f64, store_f64 = _load("float64"), _store("float64")


@intrinsic
def pointer(typing_context: Any, address: types.Type, name: types.Type) -> tuple[Any, Emitter]:
    """`pointer(address, "float32")`: a C pointer to index, by which LLVM can vectorise loops."""
    if not isinstance(name, types.StringLiteral):
        raise errors.TypingError(f"Expected a literal type name. Received: {name}.")
    element = getattr(types, name.literal_value)

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        return builder.inttoptr(arguments[0], context.get_data_type(types.CPointer(element)))

    return types.CPointer(element)(types.int64, name), emit


def _prefetching(locality: int) -> Any:
    """The intrinsic with LLVM's degree of locality: 3 for the first-level cache, 2 for the second."""

    @intrinsic
    def prefetch_line(typing_context: Any, address: types.Type) -> tuple[Any, Emitter]:
        """Prefetches a cache line; any address may be given."""

        def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
            pointer = builder.inttoptr(arguments[0], POINTER)
            call(builder, "prefetch.p0", VOID, pointer, I32(0), I32(locality), I32(1))
            return context.get_dummy_value()

        return types.void(types.int64), emit

    return prefetch_line


prefetch, prefetch_to_second_level = _prefetching(3), _prefetching(2)


@intrinsic
def call4(
    typing_context: Any,
    address: types.Type,
    parameters: types.Type,
    lo: types.Type,
    hi: types.Type,
    scratch: types.Type,
) -> tuple[Any, Emitter]:
    """Calls the codelet at an address."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        function = ir.FunctionType(VOID, [I64] * 4)
        builder.call(builder.inttoptr(arguments[0], function.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), emit


@intrinsic
def call0(typing_context: Any, address: types.Type) -> tuple[Any, Emitter]:
    """Calls `int f(void)` at an address, for instance sched_yield."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        function = ir.FunctionType(I32, [])
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), [])

    return types.int32(types.int64), emit


@intrinsic
def load_acquire(typing_context: Any, address: types.Type) -> tuple[Any, Emitter]:
    """Loads an int64 with acquire ordering."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        return builder.load_atomic(builder.inttoptr(arguments[0], POINTER), "acquire", 8, typ=I64)

    return types.int64(types.int64), emit


@intrinsic
def store_release(typing_context: Any, address: types.Type, value: types.Type) -> tuple[Any, Emitter]:
    """Stores an int64 with release ordering."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        # llvmlite supports atomic stores through typed pointers only.
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], I64.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def pause(typing_context: Any) -> tuple[Any, Emitter]:
    """Tells the processor that this is a spin-wait loop."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        if X86:
            call(builder, "x86.sse2.pause", VOID)
        elif ARM:
            call(builder, "aarch64.hint", VOID, I32(1))
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def floating_point_state(typing_context: Any) -> tuple[Any, Emitter]:
    """Returns this thread's floating-point control register (MXCSR or FPCR); 0 on other processors."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        if X86:
            slot = cgutils.alloca_once(builder, I32)
            call(builder, "x86.sse.stmxcsr", VOID, slot)
            return builder.zext(builder.load(slot, typ=I32), I64)
        if ARM:
            return call(builder, "aarch64.get.fpcr", I64)
        return I64(0)

    return types.int64(), emit


@intrinsic
def set_floating_point_state(typing_context: Any, state: types.Type) -> tuple[Any, Emitter]:
    """Restores a state that `floating_point_state` returned in this thread."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        if X86:
            slot = cgutils.alloca_once(builder, I32)
            builder.store(builder.trunc(arguments[0], I32), slot)
            call(builder, "x86.sse.ldmxcsr", VOID, slot)
        elif ARM:
            call(builder, "aarch64.set.fpcr", VOID, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def flush_to_zero(typing_context: Any, state: types.Type) -> tuple[Any, Emitter]:
    """A floating-point state with denormals, which are 150 times slower, as zero; unchanged except on x86 and ARM."""

    def emit(context: Any, builder: ir.IRBuilder, _: Any, arguments: tuple[ir.Value, ...]) -> ir.Value:
        bits = FLUSH_TO_ZERO_X86 if X86 else FLUSH_TO_ZERO_ARM if ARM else 0
        return builder.or_(arguments[0], I64(bits))

    return types.int64(types.int64), emit
