"""Links a codelet and all its callees into one module of LLVM IR, optimises it once and compiles it."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import binding

from engine.errors import InternalError
from engine.machine_code import optimising

PIPELINE = optimising.Pipeline(level=3, loops=True)

RUNTIMES = ("numba", "NRT_", "Py", "_Py", "_ZN08NumbaEnv")
"""Prefixes of symbols that only exist in a process that has loaded Numba, or are addresses of one process."""


def object_of(texts: list[str], function: str, name: str, in_vectors: bool = False) -> bytes:
    """Links modules of IR, and compiles object code with one symbol, the codelet `name`; in the IR it is `function`.

    With `in_vectors` the loops of the IR are vectorised by hand.

    Raises InternalError for a codelet that needs Python or Numba at run time, for instance one that allocates.
    """
    module = linked(texts, function)
    module.get_function(function).name = name
    pipeline = optimising.WRITTEN_IN_VECTORS if in_vectors else PIPELINE
    optimising.optimise(module, pipeline)
    foreign = foreign_symbols(module)
    if foreign:
        raise InternalError(f"Expected a codelet that needs no runtime. Received: {name} with {', '.join(foreign)}.")
    return optimising.object_of(module, pipeline)


def linked(texts: Sequence[str], function: str) -> binding.ModuleRef:
    """One module of the modules of IR, in which all that is defined is internal but the function of this name."""
    context = binding.create_context()
    module, *others = [binding.parse_assembly(text, context) for text in texts]
    for other in others:
        module.link_in(other)
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != function:
            each.linkage = "internal"
    return module


def foreign_symbols(module: binding.ModuleRef) -> list[str]:
    """Symbols that a module needs and that only a process with Python or Numba has."""
    outside = [each.name for each in (*module.functions, *module.global_variables) if each.is_declaration]
    dynamic = [each.name for each in module.global_variables if each.name.startswith("numba.dynamic.globals")]
    return [each for each in outside if each.startswith(RUNTIMES)] + dynamic
