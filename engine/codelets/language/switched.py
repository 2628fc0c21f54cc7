"""Kernels in variants: functions of LLVM IR, of which a number at run time selects the one to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import I64, VOID
from engine.machine_code.llvm import ir


def switched(name: str, cases: Sequence[int], write: Callable[..., None]) -> Any:
    """Makes an intrinsic whose first argument selects the function to call, or none.

    The function of a case is `outlined`; `write(builder, case, arguments)` writes it.
    """

    @intrinsic
    def kernel(builder: ir.IRBuilder, chosen: ir.Value, *arguments: ir.Value) -> None:
        done = builder.append_basic_block("done")
        switch = builder.switch(chosen, done)
        for case in cases:
            block = builder.append_basic_block(f"case_{case}")
            switch.add_case(I64(case), block)
            with builder.goto_block(block):
                outlined(builder, f"{name}_{case}", partial(_of_case, write, case), arguments)
                builder.branch(done)
        builder.position_at_end(done)

    return kernel


def _of_case(write: Callable[..., None], case: int, builder: ir.IRBuilder, *arguments: ir.Value) -> None:
    write(builder, case, arguments)


def outlined(builder: ir.IRBuilder, name: str, write: Callable[..., None], arguments: Sequence[ir.Value]) -> None:
    """Calls a function that is not inlined; `write(builder, *arguments)` writes it on first use in the module."""
    module = builder.module
    if name not in module.globals:
        function = ir.Function(module, ir.FunctionType(VOID, [I64] * len(arguments)), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        inside = ir.IRBuilder(function.append_basic_block("entry"))
        write(inside, *function.args)
        inside.ret_void()
    builder.call(module.globals[name], arguments)
