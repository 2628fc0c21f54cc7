"""Compute sets that have vertices and plans of their own on the chip, beside element-wise ones and products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isqrt

from engine.profile.exchange import exchange_cycles
from engine.profile.factorization import cholesky, triangular_solve
from engine.profile.mapping import Spread, runs, spread
from engine.profile.options import Assumptions
from engine.profile.slices import Lookup, plan_lookup
from engine.profile.streams import FROM_HOST, TO_HOST
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import kind_of, vertex_cycles
from engine.program.nest import Apply
from engine.program.program import ComputeSet
from engine.program.work.custom_calls import HostCall
from engine.program.work.factors import CholeskyWork, SolveWork
from engine.program.work.fused_loop import FusedLoop
from engine.program.work.sorting import ScanWork
from engine.target import Target

Estimator = Callable[[ComputeSet, Target, Assumptions], SuperstepCost | None]


def family_step(compute_set: ComputeSet, target: Target, assumptions: Assumptions) -> SuperstepCost | None:
    """Cost of a compute set of a family with its own estimator; None for all others."""
    if is_padding(compute_set):
        return SuperstepCost(0, 0, 0, 0, 0)
    if isinstance(compute_set.work, (*FROM_HOST, *TO_HOST, HostCall)):
        # Streams access tile memory directly, and their time counts as the host's: one sync starts them.
        return SuperstepCost(0, 0, target.superstep_sync, 0, 0)
    estimator = next((ESTIMATORS[o] for o in compute_set.work_estimate.elements if o in ESTIMATORS), None)
    if estimator is None or isinstance(compute_set.work, FusedLoop):
        return None
    return estimator(compute_set, target, assumptions)


def is_padding(compute_set: ComputeSet) -> bool:
    """Whether a compute set only pads an array, which convolutions and poolings of the chip do not need."""
    loop = compute_set.work
    if isinstance(loop, FusedLoop):
        if loop.nest.reductions or any(isinstance(node, Apply) for node in loop.nest.nodes):
            return False
    elif set(compute_set.work_estimate.elements) - {"copy"}:
        return False
    return bool(compute_set.writes) and all(span.buffer.permanent for span in compute_set.writes)


def lookup_of(compute_set: ComputeSet) -> Lookup | None:
    """The look-up of a compute set that gathers whole slices; None for all others."""
    work_estimate = compute_set.work_estimate
    elements = work_estimate.elements.get("gather", 0)
    if not work_estimate.lookups or not elements or isinstance(compute_set.work, FusedLoop):
        return None
    return _lookup_in(compute_set, elements // work_estimate.lookups, False)


def dynamic_lookup_of(compute_set: ComputeSet) -> Lookup | None:
    """A dynamic slice (or its update) along one dimension as a look-up (or update) of rows; None for all others.

    None, too, where the start of the slice in each iteration is known at compile time.
    """
    updates = "dynamic-update-slice" in compute_set.work_estimate.elements
    slices = updates or "dynamic-slice" in compute_set.work_estimate.elements
    if not slices or isinstance(compute_set.work, FusedLoop):
        return None
    read, written = compute_set.reads[0], compute_set.writes[0]
    array, box = (written, read) if updates else (read, written)
    table, rows = array.buffer.shape, box.buffer.shape
    if array.slot is not None or table.rank != rows.rank:
        return None
    sliced = [d for d in range(table.rank) if table.dimensions[d] != rows.dimensions[d]]
    if len(sliced) != 1:
        return None
    lookups = rows.dimensions[sliced[0]]
    away = not updates and array.buffer.kind != "variable"
    width = rows.elements // max(1, lookups)
    return Lookup(table.dimensions[sliced[0]], max(1, width), lookups, table.dtype.itemsize, updates, away)


def _update(compute_set: ComputeSet, target: Target, assumptions: Assumptions) -> SuperstepCost | None:
    """Cost of a scatter of whole slices."""
    elements, lookups = compute_set.work_estimate.elements["scatter"], compute_set.work_estimate.lookups
    if not lookups or not elements:
        return None
    return plan_lookup(_lookup_in(compute_set, elements // lookups, True), target, assumptions.slice_proportion())


def _lookup_in(compute_set: ComputeSet, width: int, updates: bool) -> Lookup:
    table = compute_set.writes[0].buffer if updates else compute_set.reads[0].buffer
    rows, width = table.shape.elements // max(1, width), max(1, width)
    away = not updates and table.kind != "variable"
    lookups, item = compute_set.work_estimate.lookups, table.shape.dtype.itemsize
    return Lookup(max(1, rows), width, lookups, item, updates, away)


def _sort(compute_set: ComputeSet, target: Target, _: Assumptions) -> SuperstepCost:
    """Cost of a bitonic sort: b (b + 1) / 2 rounds for 2^b elements; rounds over long distances are between tiles."""
    shape = compute_set.reads[0].buffer.shape
    item = sum(span.buffer.shape.dtype.itemsize for span in compute_set.reads)
    elements = max(1, shape.elements)
    bits = max(1, compute_set.work_estimate.elements["sort"] // elements)
    run = spread(elements, item, target)
    inside = min(bits, max(0, run.per_tile.bit_length() - 1))
    rounds = bits * (bits + 1) // 2
    within = inside * (inside + 1) // 2 + inside * (bits - inside)
    between = rounds - within
    each = vertex_cycles((("sort", "f32"),), run.per_tile, target)
    received = run.per_tile * item
    exchange = between * exchange_cycles(received, target)
    sync = between * target.superstep_sync
    held = received if between else 0
    return SuperstepCost(rounds * each, exchange, sync, run.tiles, held, held, "bitonic sort")


def _scan(compute_set: ComputeSet, target: Target, _: Assumptions) -> SuperstepCost | None:
    """Cost of a scan, as of cumulative sums; None for other windows.

    Each tile scans its part of a row. It then receives the totals of the parts before, adds them up, and adds the sum
    to its elements.
    """
    work = compute_set.work
    if not isinstance(work, ScanWork):
        return None
    kind, item = kind_of(work.element_type), compute_set.writes[0].buffer.shape.dtype.itemsize
    points = work.outer * work.results * work.inner
    found = [
        _scanned(run, work, kind, item, target) for run in runs(points, spread(points, item, target), [work.results])
    ]
    return min(found, key=lambda step: step.cycles)


def _scanned(run: Spread, work: ScanWork, kind: str, item: int, target: Target) -> SuperstepCost:
    each = vertex_cycles((("add", kind),), run.per_tile, target)
    before = min(run.tiles, -(-work.results // max(1, run.per_tile))) - 1
    if before <= 0:
        return SuperstepCost(each, 0, 0, run.tiles, 0)
    received = before * item
    compute = 2 * each + vertex_cycles((("reduce", kind),), before, target)
    return SuperstepCost(
        compute, exchange_cycles(received, target), target.superstep_sync, run.tiles, received, received, "scan"
    )


def _triangular_solve(compute_set: ComputeSet, target: Target, assumptions: Assumptions) -> SuperstepCost:
    work = compute_set.work
    assert isinstance(work, SolveWork)
    options, block = assumptions.product_options(compute_set.op_name), assumptions.triangular_solve_block
    return triangular_solve(work.matrices, work.size, work.right_sides, target, options, block)


def _cholesky(compute_set: ComputeSet, target: Target, assumptions: Assumptions) -> SuperstepCost:
    work = compute_set.work
    assert isinstance(work, CholeskyWork)
    options = assumptions.product_options(compute_set.op_name)
    return cholesky(compute_set.units, work.size, target, options, assumptions.cholesky_block)


def _factorization(compute_set: ComputeSet, target: Target, assumptions: Assumptions) -> SuperstepCost:
    """Estimate a factorization as a multiple of a Cholesky factor, by multiply-adds."""
    matrices = compute_set.units
    size = max(1, isqrt(compute_set.reads[0].buffer.shape.elements // matrices))
    one = cholesky(matrices, size, target, assumptions.product_options(compute_set.op_name), assumptions.cholesky_block)
    times = max(1, 3 * compute_set.work_estimate.elements["factorization"] // max(1, matrices * size**3))
    return replace(
        one,
        compute=times * one.compute,
        exchange=times * one.exchange,
        sync=times * one.sync,
    )


ESTIMATORS: dict[str, Estimator] = {
    "scatter": _update,
    "sort": _sort,
    "reduce-window": _scan,
    "triangular-solve": _triangular_solve,
    "cholesky": _cholesky,
    "factorization": _factorization,
}
"""Estimators by opcode of the work estimate."""
