"""Translates a codelet's function to unoptimised LLVM IR, in one pass over its source.

Numba's own frontend solves for the types of all variables of a function's bytecode, which takes five times as long, and
lets each function return a status, which LLVM then has to remove. Vertices of users, which may be any function that
Numba compiles, go that way: see frontend.py.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.core import target_extension, types
from numba.core.compiler_lock import global_compiler_lock

from engine.codelets.language.frontend import NAME
from engine.codelets.language.statements import write_function
from engine.codelets.language.translation import Translation
from engine.garbage import collector_paused
from engine.machine_code.abi import ARGUMENTS


def ir_of(function: Callable[..., None], in_vectors: bool = False) -> tuple[list[str], str]:
    """LLVM IR of a codelet and of all its callees, as texts of modules; and the name of its function in the first.

    Raises InternalError for a function that is not in the language of codelets.
    """
    with global_compiler_lock, target_extension.target_override(NAME), collector_paused():
        translation = Translation(write_function, in_vectors)
        with translation.context.push_code_library(translation.library):
            written, _ = translation.function(function, (types.int64,) * ARGUMENTS)
            translation.context.post_lowering(translation.module, translation.library)
        translation.library.add_ir_module(translation.module)
        return translation.library.all_texts(), written.name
