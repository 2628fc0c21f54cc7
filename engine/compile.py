"""From a module to an executable: simplify, fuse, order, lower, load."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from engine.compiler_options import DEFAULT_OPTIONS, CompilerOptions
from engine.files.kept import prepared
from engine.ir import Module
from engine.ir.floating_point import IEEE, FloatingPoint
from engine.ir.verifier import verify as verify_module
from engine.lower.program import lower_module
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.conditionals import conditionals_to_selects
from engine.passes.dead_code import dead_code
from engine.passes.fast_math import fast_math
from engine.passes.fuse import fuse
from engine.passes.loops.pipeline import take_work_out_of_loops
from engine.passes.narrow_arguments import narrow_arguments
from engine.passes.order import schedule
from engine.passes.pipeline import run_passes
from engine.passes.reciprocal_square_roots import reciprocal_square_roots
from engine.passes.recognized_functions import recognized_functions
from engine.passes.recompute_differences import recompute_differences
from engine.passes.rounding import explicit_rounding
from engine.passes.slices_first import slices_first
from engine.passes.sparse_updates import sparse_updates
from engine.passes.token_chains import check_token_chains
from engine.passes.transposed_products import sums_of_transposed_products
from engine.passes.update_order import readers_before_updates
from engine.program.program import Program
from engine.runtime.executable import Executable
from engine.runtime.making import make_executable

Progress = Callable[[str, int, int], None]
Inspect = Callable[[Program], None]
LAST_PASSES = (
    *(
        narrow_arguments,
        sums_of_transposed_products,
        common_subexpressions,
        recognized_functions,
        sparse_updates,
        reciprocal_square_roots,
        slices_first,
        dead_code,
    ),
    *(recompute_differences, fuse, dead_code),
)


def prepare(
    module: Module,
    verify: bool = False,
    floating_point: FloatingPoint = IEEE,
    options: CompilerOptions = DEFAULT_OPTIONS,
) -> Module:
    """All passes: the module as it is lowered. With `verify` each pass's result is checked."""
    check_token_chains(module)
    module = run_passes(conditionals_to_selects(module), verify=verify)
    if options.fast_math:
        module = fast_math(module)
    module = take_work_out_of_loops(module, verify=verify)
    module = explicit_rounding(module, floating_point)
    if verify:
        verify_module(module)
    for each in LAST_PASSES:
        module = each(module)
        if verify:
            verify_module(module)
    return schedule(module, readers_before_updates(module), options)


def build_program(
    module: Module,
    roles: list[str],
    constants: dict[int, np.ndarray],
    verify: bool = False,
    floating_point: FloatingPoint = IEEE,
    options: CompilerOptions = DEFAULT_OPTIONS,
) -> Program:
    """The compute sets of one step. Raises UnsupportedOperation for what the engine cannot run."""
    return lower_module(prepare(module, verify, floating_point, options), roles, constants, floating_point.exceptions)


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
    `progress(what, done, total)` is told of codelets that are compiled for the first time on this machine.
    What the passes make of large modules is kept in `folder`, or else in the user's cache. `floating_point` says how
    halves are rounded and what is an exception. `inspect` sees the program before machine code is made for it, as a
    chip has it: that rounds and looks for exceptions in its arithmetic.
    Raises UnsupportedOperation for what the engine cannot run, and what `inspect` raises.
    """
    if verify:
        program = plain = build_program(module, roles, constants, verify, floating_point, options)
    elif floating_point == IEEE:
        program = plain = lower_module(
            prepared(module, partial(prepare, options=options), folder, repr(options)), roles, constants
        )
    else:
        program = build_program(module, roles, constants, floating_point=floating_point, options=options)
        plain = program if inspect is None else build_program(module, roles, constants, options=options)
    if inspect is not None:
        inspect(plain)
    return make_executable(program, progress)
