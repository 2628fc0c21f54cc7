"""Compilation of a module to an executable: simplify, fuse, order, lower, load."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np

from engine.compiler_options import DEFAULT_OPTIONS, CompilerOptions
from engine.files.kept import prepared
from engine.garbage import collector_paused
from engine.ir import Module
from engine.ir.floating_point import IEEE, FloatingPoint
from engine.lower.program import lower_module
from engine.passes.pass_list import Listener, Settings, run_pipelines
from engine.program.pass_list import PROGRAM_PASSES
from engine.program.program import Program
from engine.program.run_passes import listening, run_passes
from engine.program.verifier import verify as verify_program
from engine.resource_limits import interruptible
from engine.runtime.executable import Executable
from engine.runtime.make_executable import make_executable

FEWEST_KEPT = 1000
"""Instructions of a module from which on it is loaded faster than it is prepared."""
Progress = Callable[[str, int, int], None]
Inspect = Callable[[Program], None]


def prepare(
    module: Module,
    verify: bool = False,
    floating_point: FloatingPoint = IEEE,
    options: CompilerOptions = DEFAULT_OPTIONS,
    listener: Listener | None = None,
) -> Module:
    """The module after MODULE_PASSES, ready for lowering. With `verify` each pass's result is checked.

    The listener gets the name and the result of each pass.
    """
    return run_pipelines(module, settings=Settings(floating_point, options), verify=verify, listener=listener)


def build_program(
    module: Module,
    roles: list[str],
    constants: dict[int, np.ndarray],
    verify: bool = False,
    floating_point: FloatingPoint = IEEE,
    options: CompilerOptions = DEFAULT_OPTIONS,
) -> Program:
    """The compute sets of one step. Raises UnsupportedOperation for operations that the engine cannot run."""
    ready = prepare(module, verify, floating_point, options)
    with listening(lambda _, program: verify_program(program)) if verify else nullcontext():
        return run_passes(lower_module(ready, roles, constants, floating_point.exceptions), PROGRAM_PASSES)


def compile_module(
    module: Module,
    roles: list[str],
    constants: dict[int, np.ndarray],
    *,
    verify: bool = False,
    progress: Progress | None = None,
    folder: Path | None = None,
    floating_point: FloatingPoint = IEEE,
    options: CompilerOptions = DEFAULT_OPTIONS,
    inspect: Inspect | None = None,
) -> Executable:
    """An executable of one step of `module`.

    `roles` has "feed", "variable" or "constant" for each entry parameter; `constants` the values of the last kind.
    `progress(what, done, total)` is called for codelets that are compiled for the first time on this machine. Results
    of the passes on large modules are kept in `folder`, or else in the user's cache. `floating_point` sets how 16-bit
    floats are rounded and which exceptions are raised. `inspect` gets the program before machine code is generated, as
    a chip has it: a chip rounds in its arithmetic. Raises UnsupportedOperation for operations that the engine cannot
    run, and what `inspect` raises.
    """
    with collector_paused(), interruptible():
        if verify:
            program = plain = build_program(module, roles, constants, verify, floating_point, options)
        elif floating_point.rounds_to_nearest:
            passes = partial(prepare, options=options)
            large = sum(len(each.instructions) for each in module.computations()) >= FEWEST_KEPT
            ready = prepared(module, passes, folder, repr(options)) if large else passes(module)
            program = plain = run_passes(
                lower_module(ready, roles, constants, floating_point.exceptions), PROGRAM_PASSES
            )
        else:
            program = build_program(module, roles, constants, floating_point=floating_point, options=options)
            plain = program if inspect is None else build_program(module, roles, constants, options=options)
        if inspect is not None:
            inspect(plain)
    with collector_paused():
        return make_executable(program, progress)
