"""Kernels in variants: functions of LLVM IR, of which a number at run time selects the one to call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.codelets.language.lazy import types
from engine.codelets.language.memory import I64, VOID, Emitter, intrinsic
from engine.machine_code.llvm import ir


def switched(make: Callable[[ir.Module, int], ir.Function], cases: Iterable[int], arguments: int) -> Any:
    """Makes an intrinsic whose first argument selects the kernel `make(module, case)` to call, or none."""

    @intrinsic
    def kernel(typing_context: Any, *given: types.Type) -> tuple[Any, Emitter]:
        def emit(context: Any, builder: ir.IRBuilder, _: Any, values: tuple[ir.Value, ...]) -> ir.Value:
            done = builder.append_basic_block("done")
            switch = builder.switch(values[0], done)
            for case in cases:
                block = builder.append_basic_block(f"case_{case}")
                switch.add_case(I64(case), block)
                with builder.goto_block(block):
                    builder.call(make(builder.module, case), values[1:])
                    builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * arguments), emit

    return kernel


def internal_function(module: ir.Module, name: str, arguments: int) -> tuple[ir.Function, ir.IRBuilder]:
    """A function of int64 that is not inlined, and a builder at its entry."""
    function = ir.Function(module, ir.FunctionType(VOID, [I64] * arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return function, ir.IRBuilder(function.append_basic_block("entry"))
