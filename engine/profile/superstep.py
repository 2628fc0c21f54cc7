"""One superstep: a compute set's sync, exchange and compute on the tiles of a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import isqrt, prod

from engine.errors import InternalError
from engine.frozen import frozen
from engine.profile.convolution import PlannedConvolution
from engine.profile.exchange import Layouts, exchange_cycles, point_order, received_bytes
from engine.profile.families import dynamic_lookup_of, family_step, lookup_of
from engine.profile.mapping import Spread, runs, spread, spread_evenly
from engine.profile.matmul import Product
from engine.profile.options import DEFAULT_ASSUMPTIONS, Assumptions, ProductOptions
from engine.profile.plan import best_plan
from engine.profile.slices import Lookup, plan_lookup
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import declared_cycles, kind_of, pooling_cycles, smaller_cycles, vertex_cycles, work_of
from engine.program.program import Buffer, ComputeSet
from engine.program.work.contraction import Contraction
from engine.program.work.convolution import Convolution
from engine.program.work.fused_loop import FusedLoop
from engine.target import Target


def superstep(
    compute_set: ComputeSet, layouts: Layouts, target: Target, assumptions: Assumptions = DEFAULT_ASSUMPTIONS
) -> SuperstepCost:
    """Cost of a compute set, given the layouts of its operands. Raises InternalError for an unknown codelet."""
    if compute_set.work_estimate.multiply_adds and kind_of(compute_set.work_estimate.element_type) != "integer":
        options = options_of(compute_set, assumptions)
        return one_after_the_other([best_plan(each, target, options) for each in planned_of(compute_set, layouts)])
    if layouts.adds_parts(compute_set) or compute_set in layouts.library.keys:
        shape = compute_set.writes[0].buffer.shape
        return SuperstepCost(0, 0, 0, spread(shape.elements, shape.dtype.itemsize, target).tiles, 0)
    rows = lookup_at_home(compute_set, layouts)
    if rows is not None:
        return plan_lookup(rows, target, assumptions.slice_proportion())
    found = family_step(compute_set, target, assumptions) or _element_wise(compute_set, layouts, target)
    lookup = dynamic_lookup_of(compute_set) if assumptions.optimizations.replace_dynamic_slices else None
    if lookup is None:
        return found
    planned = plan_lookup(lookup, target, assumptions.slice_proportion())
    return min(found, planned, key=lambda step: step.cycles)


def lookup_at_home(compute_set: ComputeSet, layouts: Layouts) -> Lookup | None:
    """The look-up of a compute set that gathers whole slices, with its table at home if it is a variable."""
    found = lookup_of(compute_set)
    return None if found is None else replace(found, away=not layouts.is_table(compute_set.reads[0].buffer))


def _element_wise(compute_set: ComputeSet, layouts: Layouts, target: Target) -> SuperstepCost:
    work = work_of(compute_set, layouts.library)
    spans = compute_set.writes or compute_set.reads
    item = max((s.buffer.shape.dtype.itemsize for s in spans), default=4)
    operations, points = work.operations, work.points
    if compute_set.work_estimate.multiply_adds:
        points = compute_set.work_estimate.multiply_adds
        operations = (("multiply", "integer"), ("add", "integer"))
    declared = compute_set.work_estimate.vertex
    if declared is not None:
        run = spread_evenly(declared.rows, target)
        return _on(compute_set, run, declared_cycles(declared, run.per_tile, target), layouts, target)
    row = _pooling_row(compute_set) if compute_set.work_estimate.windows else 0
    order = point_order(compute_set)
    even = spread(points, item if order is None or row else order.item_bytes, target)
    found = []
    for run in [even] if order is None or row else runs(points, even, order.periods()):
        if row:
            compute = pooling_cycles(operations[-1][1], run.per_tile, row, target)
        else:
            compute = vertex_cycles(operations, run.per_tile, target, work.form) + smaller_cycles(work.smaller, target)
        found.append(_on(compute_set, run, compute, layouts, target))
    most = found[0].received_bytes
    return min((step for step in found if step.received_bytes <= most), key=lambda step: step.cycles)


def _on(compute_set: ComputeSet, run: Spread, compute: int, layouts: Layouts, target: Target) -> SuperstepCost:
    """The cost of a compute set on so many tiles, whose vertices take `compute` cycles."""
    received = received_bytes(compute_set, run, layouts)
    exchange = exchange_cycles(received, target)
    plan = plan_reduction(*_partial_results(compute_set, run), target)
    # Tiles that read only what they have go on without a sync.
    syncs = (plan.stages + (exchange > 0)) * target.superstep_sync
    return SuperstepCost(compute + plan.compute, exchange + plan.exchange, syncs, run.tiles, received, received)


def _pooling_row(compute_set: ComputeSet) -> int:
    """Elements of a row of a tap: the innermost output positions times the loops inside the taps."""
    loop = compute_set.work
    if not isinstance(loop, FusedLoop):
        return 1
    nest, extents = loop.nest, loop.extents
    last = next((d for d in reversed(range(nest.rank)) if nest.reduced[d]), 0)
    before = [e for e, reduced in zip(extents[:last], nest.reduced[:last], strict=True) if not reduced]
    return prod(extents[last + 1 :]) * (before[-1] if before else 1)


def options_of(compute_set: ComputeSet, assumptions: Assumptions) -> ProductOptions:
    """The options for planning a product or a convolution. Its own type of partials overrides the assumptions."""
    work_estimate = compute_set.work_estimate
    options = assumptions.product_options(compute_set.op_name, isinstance(compute_set.work, Convolution))
    return replace(options, partials_type=work_estimate.partials_type) if work_estimate.partials_type else options


def planned_of(compute_set: ComputeSet, layouts: Layouts) -> list[PlannedConvolution]:
    """The convolutions that a chip plans for a compute set: one for each combination of phases, or a matrix product.

    Raises InternalError for an unknown codelet.
    """
    work = compute_set.work
    if not isinstance(work, Convolution):
        return [product_of(compute_set, layouts).convolution]
    kind, resident = kind_of(compute_set.work_estimate.element_type), _resident(compute_set, layouts)
    transposed = _transposed(compute_set, layouts)
    return [PlannedConvolution(size, kind, resident, transposed) for size in work.parts]


def product_of(compute_set: ComputeSet, layouts: Layouts) -> Product:
    """The matrix product of a compute set without a convolution. Raises InternalError for an unknown codelet."""
    work_estimate = compute_set.work_estimate
    work, size = compute_set.work, work_estimate.product
    if isinstance(work, Contraction):
        size = size or work.size
    if size is None:
        raise InternalError(
            f"Expected a contraction for the multiply-adds of {compute_set.name}. Received: {work!r:.200}."
        )
    batches, rows, columns, k = size
    a, b = (span.buffer.shape.elements for span in compute_set.reads[:2])
    kind, resident = kind_of(work_estimate.element_type), _resident(compute_set, layouts)
    return Product(batches, rows, columns, k, kind, a, b, resident, _transposed(compute_set, layouts))


def one_after_the_other(steps: Sequence[SuperstepCost]) -> SuperstepCost:
    """The cost of supersteps one after the other, each with temporary bytes of its own."""
    if len(steps) == 1:
        return steps[0]
    return SuperstepCost(
        sum(step.compute for step in steps),
        sum(step.exchange for step in steps),
        sum(step.sync for step in steps),
        max(step.tiles for step in steps),
        max(step.temporary_bytes for step in steps),
        max(step.received_bytes for step in steps),
        max(steps, key=lambda step: step.compute).method,
    )


def _resident(compute_set: ComputeSet, layouts: Layouts) -> str:
    """The operand that is on the tiles that need it: "a", "b" or ""."""
    a, b = (span.buffer for span in compute_set.reads[:2])
    return "b" if layouts.is_home(b, compute_set) else "a" if layouts.is_home(a, compute_set) else ""


def _transposed(compute_set: ComputeSet, layouts: Layouts) -> str:
    """The operands that are not in the engine's order: tables of look-ups, variables that another product has in its
    order, and other arrays whose terms of a sum are not contiguous in memory.
    """
    work = compute_set.work
    strided = work.transposed if isinstance(work, Contraction | Convolution) else ""

    def is_transposed(name: str, buffer: Buffer) -> bool:
        arranged = layouts.is_arranged(buffer, compute_set)
        return layouts.is_table(buffer) or (name in strided if arranged is None else not arranged)

    pairs = zip("ab", (span.buffer for span in compute_set.reads[:2]), strict=False)
    return "".join(name for name, buffer in pairs if is_transposed(name, buffer))


def _partial_results(compute_set: ComputeSet, run: Spread) -> tuple[int, int]:
    """Number of tiles with a part of each sum, and number of sums; (1, 0) if one tile computes each sum."""
    loop, order = compute_set.work, point_order(compute_set)
    if order is None or not isinstance(loop, FusedLoop) or not loop.nest.reductions or run.tiles <= 1:
        return 1, 0
    sizes = list(zip(order.extents, order.reduced, strict=True))
    terms, results = (prod(extent for extent, reduced in sizes if reduced is wanted) for wanted in (True, False))
    parts = -(-terms // run.per_tile) if order.windows else order.parts(run.per_tile)
    return min(run.tiles, parts), results * len(loop.nest.reductions)


PARTIAL_BYTES = 4


@frozen
class ReductionPlan:
    """The stages after the first superstep, and their cycles."""

    compute: int = 0
    exchange: int = 0
    stages: int = 0


@lru_cache(maxsize=4096)
def plan_reduction(parts: int, results: int, target: Target) -> ReductionPlan:
    """The cheapest plan to add up `parts` partial results, on different tiles, for each of `results` sums."""
    if parts <= 1 or results <= 0:
        return ReductionPlan()
    plans = [_staged((parts,), results, target)]
    for first in sorted({2**k for k in range(1, 11)} | {isqrt(parts - 1) + 1}):
        if first < parts:
            plans.append(_staged((first, -(-parts // first)), results, target))
    return min(plans, key=lambda p: p.compute + p.exchange + p.stages * target.superstep_sync)


def _staged(stages: tuple[int, ...], results: int, target: Target) -> ReductionPlan:
    """Cost of stages k that add up `stages[k]` parts each. Sums and groups of later stages are spread over tiles."""
    compute = exchange = 0
    for at, parts in enumerate(stages):
        groups = results
        for later in stages[at + 1 :]:
            groups *= later
        received = parts * -(-groups // target.tiles)
        compute += vertex_cycles((("reduce", "f32"),), received, target)
        exchange += exchange_cycles(received * PARTIAL_BYTES, target)
    return ReductionPlan(compute, exchange, len(stages))
