"""Passes over the functions of vertices, in place of some of Numba's own."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from numba.core import compiler, funcdesc, lowering, typed_passes
from numba.core import ir as numba_ir
from numba.core.compiler_machinery import FunctionPass, LoweringPass, register_pass


@register_pass(mutates_CFG=False, analysis_only=False)
class MembersAsNumbers(FunctionPass):
    """Replaces members of enumerations (`Field.ROWS`) by numbers: Numba would infer a type for each."""

    _name = "members_as_numbers"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        definitions = state.func_ir._definitions
        changed = False
        for block in state.func_ir.blocks.values():
            classes: dict[str, type] = {}
            for assignment in block.find_insts(numba_ir.Assign):
                value, target = assignment.value, assignment.target
                if isinstance(value, numba_ir.Expr) and value.op == "getattr" and value.value.name in classes:
                    number = int(getattr(classes[value.value.name], value.attr))
                elif isinstance(value, numba_ir.Global | numba_ir.FreeVar) and _is_enumeration(value.value):
                    if not target.is_temp:
                        continue
                    classes[target.name] = value.value
                    number = 0  # the class itself has no readers left
                else:
                    continue
                assignment.value = numba_ir.Const(number, assignment.loc)
                definitions[target.name] = [assignment.value if d is value else d for d in definitions[target.name]]
                changed = True
        return changed


def _is_enumeration(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, IntEnum)


@register_pass(mutates_CFG=True, analysis_only=False)
class TypeInference(FunctionPass):
    """Infers types of all variables. Functions may return arrays: none of them owns its memory."""

    _name = "type_inference"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.typemap, state.return_type, state.calltypes, _ = typed_passes.type_inference_stage(
            *(state.typingctx, state.targetctx, state.func_ir, state.args, state.return_type, state.locals)
        )
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class IRWriting(LoweringPass):
    """Writes LLVM IR of a typed function, without optimising it."""

    _name = "ir_writing"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        context = state.targetctx
        state.library = context.codegen().create_library(state.func_id.func_qualname)
        described = funcdesc.PythonFunctionDescriptor.from_specialized_function(
            *(state.func_ir, state.typemap, state.return_type, state.calltypes),
            mangler=context.mangler,
            inline=state.flags.forceinline,
            noalias=state.flags.noalias,
            abi_tags=[state.flags.get_mangle_string()],
        )
        with context.push_code_library(state.library):
            lower = lowering.Lower(context, state.library, described, state.func_ir, metadata=state.metadata)
            lower.lower()
            state["cr"] = compiler._LowerResult(described, lower.call_helper, cfunc=None, env=lower.env)
        return True
