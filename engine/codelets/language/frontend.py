"""Numba's frontend alone: from a vertex's function to unoptimised LLVM IR, and the types and operators of codelets.

Numba by itself would optimise and compile each function that a vertex calls, and then the vertex with all of them
inlined once more. Here each gets types and IR only; optimisation and code generation are done once, in linking.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import isfunction
from typing import Any

from llvmlite import binding, ir
from numba.core import (
    callconv,
    codegen,
    compiler,
    cpu,
    dispatcher,
    externals,
    fastmathpass,
    sigutils,
    target_extension,
    typed_passes,
    types,
    typing,
    untyped_passes,
)
from numba.core import ir as numba_ir
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.registry import CPUTarget

from engine.errors import InternalError


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


NAME = "codelets"  # of this target in Numba
OPTIONS: dict[str, Any] = {
    "nopython": True,
    "error_model": "numpy",
    "boundscheck": False,
    "fastmath": {"contract"},
    "_nrt": False,  # codelets allocate nothing
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


class FunctionIR(codegen.CodeLibrary):
    """The IR of one function, and the libraries of its callees."""

    def __init__(self, owner: Any, name: str) -> None:
        super().__init__(owner, name)
        self._texts: list[str] = []
        self._called: list[FunctionIR] = []

    def add_linking_library(self, library: FunctionIR) -> None:
        self._called.append(library)

    def add_ir_module(self, ir_module: ir.Module) -> None:
        self._texts.append(str(ir_module))

    def finalize(self) -> None:
        """Does nothing: the IR is not processed further here."""

    def get_function(self, name: str) -> Any:
        raise InternalError(f"Code was requested before optimisation: {name}. Take it from the compiled object.")

    def get_llvm_str(self) -> str:
        return "\n".join(self._texts)

    get_asm_str = get_llvm_str

    def all_texts(self) -> list[str]:
        """The IR of the function and of all its callees, each once."""
        found: dict[FunctionIR, None] = {}
        waiting = [self]
        while waiting:
            library = waiting.pop()
            if library not in found:
                found[library] = None
                waiting += library._called
        return [text for library in found for text in library._texts]


class Codegen(codegen.JITCPUCodegen):
    """Creates libraries of IR, without an execution engine."""

    _library_class = FunctionIR

    def _init(self, llvm_module: Any) -> None:
        self._target_data = binding.Target.from_default_triple().create_target_machine().target_data
        self._data_layout = str(self._target_data)
        self._triple = binding.get_process_triple()

    def _create_empty_module(self, name: str) -> ir.Module:
        module = ir.Module(name)
        if self._data_layout:
            module.triple, module.data_layout = self._triple, self._data_layout
        return module


class TypingContext(typing.BaseContext):
    """Types for the language of codelets. Loading all of NumPy would take half a second."""

    def load_additional_registries(self) -> None:
        from numba.core.typing import cmathdecl, enumdecl, mathdecl

        for each in (enumdecl, mathdecl, cmathdecl):
            self.install_registry(each.registry)


class CodeletContext(cpu.CPUContext):
    """Lowering for the language of codelets, without Numba's runtime."""

    convention = callconv.CPUCallConv

    @property
    def call_conv(self) -> callconv.CPUCallConv:
        """The convention by which functions that Numba compiles are called."""
        return self.convention(self)

    @global_compiler_lock
    def init(self) -> None:
        self.is32bit = False
        self._sizes: dict[ir.Type, int] = {}
        self._internal_codegen = Codegen(NAME)
        externals.c_math_functions.install(self)

    def load_additional_registries(self) -> None:
        # Imported for the types and functions that they register.
        from numba.core import optional  # noqa: F401
        from numba.cpython import builtins, cmathimpl, enumimpl, iterators, mathimpl, numbers, rangeobj, tupleobj  # noqa: F401
        from numba.np import arrayobj, npyimpl  # noqa: F401

        for each in (mathimpl, cmathimpl, npyimpl):
            self.install_registry(each.registry)

    def get_abi_sizeof(self, ty: ir.Type) -> int:
        # Asking LLVM would wait for it where it is busy in another thread.
        size = self._sizes.get(ty)
        if size is None:
            size = self._sizes[ty] = super().get_abi_sizeof(ty)
        return size

    def post_lowering(self, mod: ir.Module, library: FunctionIR) -> None:
        fastmathpass.rewrite_module(mod, self.fastmath)


class CodeletTarget(CPUTarget):
    """The target of codelets, whose types and code are kept apart from the user's own Numba functions."""

    @property
    def typing_context(self) -> Any:
        return _contexts()[0]

    @property
    def target_context(self) -> Any:
        return _contexts()[1]


@cache
def _contexts() -> tuple[TypingContext, CodeletContext]:
    typing_context = TypingContext()
    return typing_context, CodeletContext(typing_context, NAME)


TARGET = CodeletTarget(NAME)


class FunctionCompiler(dispatcher._FunctionCompiler):
    """Infers types and writes IR of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, TARGET, dict(OPTIONS), {}, Passes)

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_compile = True
        return flags


class InnerDispatcher(dispatcher.Dispatcher):
    """A function that vertices call: its IR for each signature."""

    targetdescr = TARGET

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        super().__init__(function, targetoptions=dict(OPTIONS))
        self._compiler = FunctionCompiler(function)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(_without_number(each) for each in args), kws)

    def compile(self, sig: Any) -> Any:
        with global_compiler_lock, self._compiling_counter:
            arguments, return_type = sigutils.normalize_signature(sig)
            known = self.overloads.get(tuple(arguments))
            if known is None:
                made = self._compiler.compile(arguments, return_type)
                known = made._replace(entry_point=object())  # a key, by which callers find the function
                self.targetctx.insert_user_function(known.entry_point, made.fndesc, [made.library])
                self.overloads[tuple(arguments)] = known
            return known.entry_point


def _without_number(argument: Any) -> Any:
    """The type without a literal integer's value: no function is specialised by it, LLVM sees it when inlining."""
    return types.unliteral(argument) if isinstance(argument, types.IntegerLiteral) else argument


@register_pass(mutates_CFG=False, analysis_only=False)
class HelpersAsInner(FunctionPass):
    """Lets a user's vertex call Python functions, and those compiled by `numba.njit`."""

    _name = "helpers_as_inner"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        changed = False
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(numba_ir.Assign):
                value = assignment.value
                if isinstance(value, numba_ir.Global | numba_ir.FreeVar):
                    function = getattr(value.value, "py_func", value.value)
                    if isfunction(function) and not function.__module__.startswith(("numba", "numpy")):
                        value.value, changed = _helper(function), True
        return changed


_helper = cache(InnerDispatcher)
"""One object for each function, which is compiled once for its types."""


class Passes(compiler.CompilerBase):
    """Numba's pipeline from bytecode through typed IR to LLVM IR."""

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("codelets")
        for each in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            untyped_passes.IRProcessing,
            HelpersAsInner,
            untyped_passes.RewriteSemanticConstants,
            untyped_passes.DeadBranchPrune,
            untyped_passes.GenericRewrites,
            untyped_passes.ReconstructSSA,
            TypeInference,
            typed_passes.PreLowerStripPhis,
            typed_passes.IRLegalization,
            typed_passes.NativeLowering,
            typed_passes.NoPythonBackend,
        ):
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


class Codelets(target_extension.CPU):
    """The class of the target, which inherits all that Numba implements for CPUs."""


target_extension.target_registry[NAME] = Codelets
target_extension.dispatcher_registry[Codelets] = InnerDispatcher
# The compiler of Numba's own functions, as far as they are written in Python.
target_extension.jit_registry[Codelets] = lambda *arguments, **options: InnerDispatcher
