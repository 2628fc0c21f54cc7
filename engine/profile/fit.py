"""Check that a program fits into tile memory."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from engine.errors import OutOfTileMemory
from engine.profile.code import sizes, stack_bytes
from engine.profile.mapping import spread
from engine.profile.options import DEFAULT_ASSUMPTIONS, Assumptions
from engine.profile.vertices import tables
from engine.program.program import ComputeSet, Program
from engine.program.work.fused_loop import FusedLoop
from engine.target import Target

SMALL = 1 / 3
"""Programs with an upper bound of at most this fraction of a tile's memory are not estimated in detail."""


def certainly_fits(program: Program, target: Target, assumptions: Assumptions = DEFAULT_ASSUMPTIONS) -> bool:
    """Whether a program fits by a bound that is fast to compute: all arrays at once, and the largest exchange.

    A linear mapping puts at most an even share of an array, and one run of the least size, on a tile. The options
    limit the temporary bytes of a plan; `_brought` limits all other received bytes.
    """
    capacity = target.bytes_per_tile
    options = (assumptions.product_options(), assumptions.product_options(convolution=True))
    granted = max(o.memory_proportion for o in (*options, *(o for _, o in assumptions.layers)))
    if granted + SMALL > 1:
        return False
    computing = assumptions.compute_target(target)
    least = tables()["mapping"]["least_bytes_per_tile"]
    arrays = {span.buffer for c in program.compute_sets for span in (*c.reads, *c.writes)}
    arrays |= {*program.feeds.values(), *program.variables.values(), *program.outputs}
    held = sum(ceil(b.shape.bytes / computing.tiles) + least for b in arrays if b.kind != "queue")
    always = stack_bytes(computing, assumptions.stack_bytes) + int(sizes()["always"]["runtime"])
    distinct = {c.of_body or c for c in program.compute_sets}
    brought = max((_brought(c, computing) for c in distinct), default=0)
    return held + brought + len(distinct) * _fixed_bytes() + always <= SMALL * capacity


def check_fit(
    program: Program,
    target: Target,
    assumptions: Assumptions = DEFAULT_ASSUMPTIONS,
    *,
    proposing: bool = True,
    source: Callable[[str], str] = OutOfTileMemory.source,
    recomputing: Callable[[], Program] | None = None,
) -> None:
    """Raise OutOfTileMemory for a program that the tiles of a target cannot hold.

    The error proposes changes, which are slow to estimate, unless `proposing` is False, and has `source`.
    `recomputing` compiles the program with recomputation of activations.
    """
    if certainly_fits(program, target, assumptions):
        return
    # Most programs certainly fit: only the others import estimates.
    from engine.profile.levers import levers
    from engine.profile.program_estimate import measured, report
    from engine.profile.refusal import out_of_tile_memory

    costs = measured(program, target, assumptions)
    if costs.memory.memory.peak_fullest > target.bytes_per_tile:
        found = report(program, target, costs, assumptions=assumptions)
        error = out_of_tile_memory(found, levers(program, found, recomputing) if proposing else None, source)
        error.program = program
        raise error


def _fixed_bytes() -> int:
    """Most bytes of code, control and vertex state of a compute set, with the fixed part of its exchange code."""
    table = sizes()
    code = max(size for size in table["code"].values() if isinstance(size, int))
    state = max(size for size in table["vertex_state"].values() if isinstance(size, int))
    return int(table["control"]["bytes_per_compute_set"] + table["exchange_code"]["bytes_per_exchange"] + code + state)


def _brought(compute_set: ComputeSet, target: Target) -> int:
    """Most bytes that a tile receives; 0 for floating-point products, for which the planner has a limit."""
    if compute_set.work_estimate.multiply_adds and compute_set.work_estimate.element_type.startswith(("f", "bf")):
        return 0
    loop = compute_set.work
    if not isinstance(loop, FusedLoop):
        made = max((s.buffer for s in compute_set.writes), key=lambda b: b.shape.elements, default=None)
        tiles = 1 if made is None else spread(made.shape.elements, made.shape.dtype.itemsize, target).tiles
        return sum(ceil(s.buffer.shape.bytes / max(1, tiles)) for s in compute_set.reads if s.buffer.kind != "queue")
    broadcast = [s.buffer.shape for s in compute_set.reads if s.buffer.shape.elements < loop.points]
    per_tile = spread(loop.points, 4, target).per_tile
    whole = sum(min(shape.bytes, per_tile * shape.dtype.itemsize) for shape in broadcast)
    return whole + sum(ceil(s.buffer.shape.bytes / target.tiles) for s in compute_set.reads)
