"""All passes on loops, in the order they run."""

from __future__ import annotations

from engine.ir import Module
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.constant_folding import constant_folding
from engine.passes.dead_code import dead_code
from engine.passes.fold_into_dot import fold_into_dot
from engine.passes.inline_calls import inline_calls
from engine.passes.loops.distribute import distribute_loops
from engine.passes.loops.flat_state import flatten_loop_states
from engine.passes.loops.prune_state import prune_loop_states
from engine.passes.pipeline import Pass, run_passes
from engine.passes.simplify_arithmetic import simplify_arithmetic
from engine.passes.simplify_shapes import simplify_shapes

LOOP_PASSES: tuple[Pass, ...] = (
    flatten_loop_states,
    # Forwards the elements of the tuples that passes on loops leave behind.
    inline_calls,
    dead_code,
    prune_loop_states,
    inline_calls,
    dead_code,
    distribute_loops,
    inline_calls,
    dead_code,
    prune_loop_states,
    inline_calls,
    common_subexpressions,
    simplify_shapes,
    constant_folding,
    fold_into_dot,
    simplify_shapes,
    simplify_arithmetic,
    dead_code,
)


def take_work_out_of_loops(module: Module, *, verify: bool = False) -> Module:
    """The module as it is if it has no loop."""
    if any(i.opcode == "while" for computation in module.computations() for i in computation.instructions):
        return run_passes(module, LOOP_PASSES, verify=verify)
    return module
