"""All simplifying passes, in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.ir import Module
from engine.ir.verifier import verify as verify_module
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.constant_folding import constant_folding
from engine.passes.dead_code import dead_code
from engine.passes.expand_batch_norm import expand_batch_norm
from engine.passes.fold_into_dot import fold_into_dot
from engine.passes.inline_calls import inline_calls
from engine.passes.limit_sorts import limit_sorts
from engine.passes.simplify_arithmetic import simplify_arithmetic
from engine.passes.simplify_shapes import simplify_shapes

Pass = Callable[[Module], Module]
Listener = Callable[[str, Module], None]

PASSES: tuple[Pass, ...] = (
    inline_calls,
    expand_batch_norm,
    dead_code,
    # Half of a traced program are equal constants and their broadcasts: these are merged before all else.
    common_subexpressions,
    simplify_shapes,
    constant_folding,
    simplify_arithmetic,
    # Folding has made predicates constant, and arithmetic has brought shapes together.
    inline_calls,
    dead_code,
    simplify_shapes,
    constant_folding,
    fold_into_dot,
    simplify_shapes,
    simplify_arithmetic,
    common_subexpressions,
    limit_sorts,
    dead_code,
)


def run_passes(
    module: Module,
    passes: Iterable[Pass] = PASSES,
    *,
    verify: bool = False,
    listener: Listener | None = None,
) -> Module:
    """The module after all passes. The listener gets each pass's name and its result.

    Raises InternalError, with `verify`, when a pass returns a module the verifier refuses.
    """
    for each in passes:
        module = each(module)
        if verify:
            verify_module(module)
        if listener is not None:
            listener(each.__name__, module)
    return module
