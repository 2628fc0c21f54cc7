"""From LLVM IR to machine code: a codelet and all it calls are one module, which is optimised once."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import binding

from engine.codelets.processor import features_text, target
from engine.errors import InternalError

# Numba's functions return a status and take addresses for a result and an exception: codelets have neither.
ENTRY = """
declare i32 @"{function}"(ptr, ptr, i64, i64, i64, i64)

define void @"{name}"(i64 %parameters, i64 %lo, i64 %hi, i64 %scratch) {{
  %result = alloca ptr
  %exception = alloca ptr
  call i32 @"{function}"(ptr %result, ptr %exception, i64 %parameters, i64 %lo, i64 %hi, i64 %scratch)
  ret void
}}
"""
RUNTIMES = ("numba", "NRT_", "Py", "_Py", "_ZN08NumbaEnv")
"""How names begin that only exist in a process that has loaded Numba, or are addresses of one process."""


@cache
def _machine() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=target()[0], features=features_text(), opt=3, codemodel="jitdefault", jit=True
    )


def object_of(texts: list[str], function: str, name: str) -> bytes:
    """Object code with one symbol, the codelet `name`, made of the modules' IR; `function` is its name in there.

    Raises InternalError for a codelet that would not run without Python or Numba, one that allocates for instance.
    """
    machine = _machine()
    context = binding.create_context()
    module = binding.parse_assembly(ENTRY.format(function=function, name=name), context)
    for text in texts:
        module.link_in(binding.parse_assembly(text, context))
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != name:
            each.linkage = "internal"
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    _optimise(module, machine)
    outside = [each.name for each in (*module.functions, *module.global_variables) if each.is_declaration]
    dynamic = [each.name for each in module.global_variables if each.name.startswith("numba.dynamic.globals")]
    foreign = [each for each in outside if each.startswith(RUNTIMES)] + dynamic
    if foreign:
        raise InternalError(f"Expected a codelet that needs no runtime. Received: {name} with {', '.join(foreign)}.")
    return bytes(machine.emit_object(module))


def _optimise(module: Any, machine: Any) -> None:
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
