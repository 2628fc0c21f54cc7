"""All passes over modules, in the order they run: MODULE_PASSES, which `engine.compile.prepare` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from engine.compiler_options import DEFAULT_OPTIONS, CompilerOptions
from engine.ir import Module
from engine.ir.floating_point import IEEE, FloatingPoint
from engine.passes.batches_outermost import batches_outermost
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.complex_products import complex_products, has_complex_products
from engine.passes.conditionals import conditionals_to_selects
from engine.passes.constant_folding import constant_folding
from engine.passes.dead_code import dead_code
from engine.passes.expand_batch_norm import expand_batch_norm
from engine.passes.expand_select_and_scatter import expand_select_and_scatter
from engine.passes.factored_derivatives import factored_derivatives
from engine.passes.fast_math import fast_math
from engine.passes.fold_into_dot import fold_into_dot
from engine.passes.fuse import fuse
from engine.passes.inline_calls import inline_calls
from engine.passes.limit_sorts import limit_sorts
from engine.passes.loops.added_rows import add_rows_in_place
from engine.passes.loops.distribute import distribute_loops
from engine.passes.loops.flat_state import flatten_loop_states
from engine.passes.loops.prune_state import prune_loop_states
from engine.passes.merged_dimensions import merged_dimensions
from engine.passes.narrow_arguments import narrow_arguments
from engine.passes.one_hot_sums import one_hot_sums
from engine.passes.order import order_loops, schedule_updates_last
from engine.passes.outer_products import outer_products
from engine.passes.outlined_bodies import call_prepared_bodies, with_prepared_bodies
from engine.passes.reciprocal_square_roots import reciprocal_square_roots
from engine.passes.recompute_activations import recompute_activations
from engine.passes.recompute_differences import recompute_differences
from engine.passes.recompute_masks import recompute_masks
from engine.passes.rounding import explicit_rounding
from engine.passes.run_passes import Listener, Pass, run_passes
from engine.passes.simplify_arithmetic import simplify_arithmetic
from engine.passes.simplify_shapes import simplify_shapes
from engine.passes.slices_first import slices_first
from engine.passes.sparse_updates import sparse_updates
from engine.passes.token_chains import check_token_chains
from engine.passes.transposed_products import sums_of_transposed_products


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a program is compiled with, besides its module."""

    floating_point: FloatingPoint = IEEE
    options: CompilerOptions = DEFAULT_OPTIONS


DEFAULT_SETTINGS = Settings()


class PassPipeline(NamedTuple):
    """Passes that run one after the other, on the modules and settings for which `applies` holds."""

    name: str
    passes: tuple[Callable[..., Module], ...]
    setting: str = ""
    """The field of Settings whose value the passes take after the module."""
    applies: Callable[[Module, Settings], bool] = lambda module, settings: True


FOLDING: tuple[Pass, ...] = (simplify_shapes, constant_folding, fold_into_dot, simplify_shapes, simplify_arithmetic)

SIMPLIFICATION: tuple[Pass, ...] = (
    inline_calls,
    dead_code,
    # Steps of pipelines are factored before they are cut, in this form, too: both find the same derivatives.
    factored_derivatives,
    expand_batch_norm,
    dead_code,
    # Half of a traced program is equal constants and their broadcasts: these are merged before all else.
    common_subexpressions,
    simplify_shapes,
    constant_folding,
    simplify_arithmetic,
    # Folding has made predicates constant, and arithmetic rules have made shapes equal.
    inline_calls,
    dead_code,
    *FOLDING,
    common_subexpressions,
    limit_sorts,
    dead_code,
)

FLAT_LOOP_STATES: tuple[Pass, ...] = (
    flatten_loop_states,
    # Forwards the elements of the tuples that passes on loops leave.
    inline_calls,
    dead_code,
    prune_loop_states,
    inline_calls,
    dead_code,
)
"""Passes that make states of loops arrays, not tuples, without elements that bodies only read."""

LOOP_PASSES: tuple[Pass, ...] = (
    *FLAT_LOOP_STATES,
    add_rows_in_place,
    distribute_loops,
    inline_calls,
    dead_code,
    prune_loop_states,
    inline_calls,
    common_subexpressions,
    *FOLDING,
    dead_code,
)

FUSION: tuple[Pass, ...] = (
    expand_select_and_scatter,
    one_hot_sums,
    narrow_arguments,
    merged_dimensions,
    sums_of_transposed_products,
    batches_outermost,
    outer_products,
    simplify_shapes,
    common_subexpressions,
    sparse_updates,
    reciprocal_square_roots,
    slices_first,
    dead_code,
    recompute_differences,
    recompute_masks,
    fuse,
    dead_code,
)

RECOMPUTATION: tuple[Pass, ...] = (recompute_activations, dead_code)

MODULE_PASSES: tuple[PassPipeline, ...] = (
    PassPipeline("branches", (check_token_chains, conditionals_to_selects)),
    PassPipeline("simplification", SIMPLIFICATION),
    PassPipeline(
        "complex products",
        (complex_products, simplify_shapes, simplify_arithmetic, common_subexpressions, dead_code),
        applies=lambda module, settings: has_complex_products(module),
    ),
    PassPipeline("fast math", (fast_math,), applies=lambda module, settings: settings.options.fast_math),
    PassPipeline("loops", LOOP_PASSES, applies=lambda module, settings: _has_loops(module)),
    PassPipeline("rounding", (explicit_rounding,), setting="floating_point"),
    PassPipeline("fusion", FUSION),
    PassPipeline("recomputation", RECOMPUTATION, applies=lambda module, settings: settings.options.recompute),
    PassPipeline("outlined bodies", (call_prepared_bodies,)),
    PassPipeline("order of loops", (order_loops,), applies=lambda module, settings: _has_loops(module)),
    PassPipeline("scheduling", (schedule_updates_last,), setting="options"),
)
BODY_PASSES, ORDERING = MODULE_PASSES[:-3], MODULE_PASSES[-2:]
"""Passes over the bodies of outlined functions, and passes that order their instructions."""


def _has_loops(module: Module) -> bool:
    return any(i.opcode == "while" for i in module.instructions())


def run_pipelines(
    module: Module,
    pipelines: Iterable[PassPipeline] = MODULE_PASSES,
    settings: Settings = DEFAULT_SETTINGS,
    *,
    verify: bool = False,
    listener: Listener | None = None,
) -> Module:
    """The module after the passes of those pipelines that apply to it; see `run_passes`.

    Bodies of outlined functions go through BODY_PASSES first.
    """
    prepare, order = (
        partial(run_pipelines, pipelines=each, settings=settings, verify=verify, listener=listener)
        for each in (BODY_PASSES, ORDERING)
    )
    module = with_prepared_bodies(module, prepare, order)
    for each in pipelines:
        if each.applies(module, settings):
            values = (getattr(settings, each.setting),) if each.setting else ()
            module = run_passes(module, each.passes, *values, verify=verify, listener=listener)
    return module
