"""Cost report of a program: bytes and cycles that a chip would need for one step, estimated without running it.

Counters of loops whose bodies slice arrays by them, as recurrent layers slice their inputs, outputs and lists.

A chip has a loop's counter on one tile. Each iteration increments it there, and sends it to the tiles of the sliced
arrays: a superstep with an exchange of its own. Slices at one iteration share it.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from engine.frozen import frozen
from engine.profile.exchange import Layouts, exchange_cycles, slices_by_counter
from engine.profile.links import all_reduce_cycles, gradient_sums, updates_of
from engine.profile.loops import runs_of, skipped, unknown_loops, updates_of_sums
from engine.profile.memory import MemoryEstimate, MemoryEstimator
from engine.profile.merging import merge_supersteps
from engine.profile.names import buffer_names, label_of
from engine.profile.operations import operation_of
from engine.profile.options import DEFAULT_ASSUMPTIONS, Assumptions
from engine.profile.step_costs import ComputeSetCost, StepCosts
from engine.profile.streams import host_bytes, host_cycles, samples_of
from engine.profile.summary import summary
from engine.profile.superstep import superstep
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import is_listed, vertex_cycles, work_of
from engine.program.program import ComputeSet, Program
from engine.shown import Shown
from engine.target import Target

COUNTER_BYTES = 4


def with_counters(program: Program, steps: Sequence[SuperstepCost], target: Target) -> list[SuperstepCost]:
    """The supersteps of a program, where the first slice by its counter in each loop's body has the counter's, too."""
    loops = [region for region in program.regions if region.repeats]
    found, counted = list(steps), set[int]()
    for at, compute_set in enumerate(program.compute_sets):
        around = [number for number, loop in enumerate(loops) if loop.begin <= at < loop.end]
        if not around or not slices_by_counter(compute_set):
            continue
        innermost = min(around, key=lambda number: loops[number].end - loops[number].begin)
        if innermost not in counted:
            counted.add(innermost)
            found[at] = _with_counter(found[at], target)
    return found


def _with_counter(step: SuperstepCost, target: Target) -> SuperstepCost:
    return replace(
        step,
        compute=step.compute + vertex_cycles((("add", "integer"),), 1, target),
        exchange=step.exchange + exchange_cycles(COUNTER_BYTES, target),
        sync=step.sync + target.superstep_sync,
        temporary_bytes=step.temporary_bytes + COUNTER_BYTES,
        received_bytes=step.received_bytes + COUNTER_BYTES,
    )


logger = logging.getLogger("ipu")


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(StepCosts, Shown):
    """Cost report of a step. Prompts and notebooks show it as a table."""

    def table(self) -> str:
        """The text of `engine.profile.summary`."""
        return summary(self)


@frozen
class Measured:
    """The cost of each compute set of a step, and its memory: the source of a cost report."""

    steps: list[SuperstepCost]
    memory: MemoryEstimate


def estimate(
    program: Program,
    target: Target,
    replicas: int = 1,
    assumptions: Assumptions = DEFAULT_ASSUMPTIONS,
    planning: Sequence[Assumptions] | None = None,
) -> Estimate:
    """Cost report of one step of a program on a target.

    Work and arrays are mapped linearly (engine.profile.mapping). Planners map matrix products and convolutions by the
    options of `assumptions`, or of `planning`, which has the options of each compute set. Each replica is one chip with
    the same program. Raises ConfigurationError if I/O tiles leave no tile to compute.
    """
    return report(program, target, measured(program, target, assumptions, planning), replicas, assumptions)


def report(
    program: Program,
    target: Target,
    found: Measured,
    replicas: int = 1,
    assumptions: Assumptions = DEFAULT_ASSUMPTIONS,
) -> Estimate:
    """The cost report of one step from `found`, the result of `measured` with the same arguments."""
    held = found.memory
    if assumptions.overlapped_io and not held.streams_fit:
        assumptions = replace(assumptions, overlapped_io=False)
    names = buffer_names(program)
    runs = runs_of(program)
    idle = skipped(program, [n * c.cycles for c, n in zip(found.steps, runs, strict=True)])
    rare = updates_of_sums(program) if assumptions.state_interval > 1 else ()
    runs = [0 if at in idle else -(-n // assumptions.state_interval) if at in rare else n for at, n in enumerate(runs)]
    costs = tuple(
        _cost(s, c, label_of(s, names), live, n)
        for s, c, live, n in zip(program.compute_sets, found.steps, held.memory.live_bytes, runs, strict=True)
    )
    fed, returned = host_bytes(program)
    sums, updates = gradient_sums(program, assumptions), updates_of(program, assumptions)
    summed = all_reduce_cycles(sums, target, replicas, assumptions.optimizations.syncless_collectives)
    return Estimate(
        program_name=program.name,
        target=target,
        replicas=replicas,
        memory=held.memory,
        tiles=held.tiles,
        liveness=held.liveness,
        costs=costs,
        between_ipus=(updates * summed[0], updates * summed[1]),
        gradient_sums=sums,
        updates=updates,
        host_bytes=(fed, returned),
        host=host_cycles(fed, returned, target),
        samples_per_replica=samples_of(program),
        assumed=_assumed(program),
        unknown_loops=unknown_loops(program),
        assumptions=assumptions,
        remote=held.remote,
        work=held.work,
        regions=tuple(program.regions),
    )


def measured(
    program: Program,
    target: Target,
    assumptions: Assumptions = DEFAULT_ASSUMPTIONS,
    planning: Sequence[Assumptions] | None = None,
) -> Measured:
    """The cost of each compute set, and the memory of the step; arguments and errors are those of `estimate`."""
    layouts = Layouts(program.compute_sets)
    steps = []
    computing = assumptions.compute_target(target)
    shared = planning is None and not assumptions.layers
    of_bodies: dict[Hashable, SuperstepCost] = {}
    for number, compute_set in enumerate(program.compute_sets):
        options = assumptions if planning is None else planning[number]
        key = compute_set.of_body and shared and (compute_set.of_body, layouts.known_of(compute_set))
        step = of_bodies.get(key) if key else None
        steps.append(step or superstep(compute_set, layouts, computing, options))
        if key:
            of_bodies[key] = steps[-1]
    steps = with_counters(program, steps, computing)
    if assumptions.optimizations.merges:
        steps = merge_supersteps(program, steps, layouts, computing, assumptions, planning)
    held = MemoryEstimator(program, steps, target, layouts, assumptions).run()
    if assumptions.overlapped_io and not held.streams_fit:
        _warn_of_streams(assumptions.io_tiles, assumptions.io_tile_memory_proportion)
    return Measured(steps, held)


@cache
def _warn_of_streams(io_tiles: int, proportion: float) -> None:
    """Warn once for each pair of arguments."""
    logger.warning(
        "Stream buffers need more than the I/O tiles may hold (%d tiles, io_tiles.available_memory_proportion %g): "
        "they are on the other tiles, and transfers from and to the host do not overlap compute.",
        *(io_tiles, proportion),
    )


def _cost(compute_set: ComputeSet, step: SuperstepCost, label: str, live: int, runs: int) -> ComputeSetCost:
    cycles = (runs * step.compute, runs * step.exchange, runs * step.sync)
    done = operation_of(compute_set)
    return ComputeSetCost(
        compute_set.name, label, *cycles, step.tiles, live, runs, done, step.method, compute_set.op_name
    )


def _assumed(program: Program) -> tuple[str, ...]:
    opcodes = {
        opcode for s in program.compute_sets if s.work_estimate.vertex is None for opcode, _ in work_of(s).operations
    }
    return tuple(sorted(opcode for opcode in opcodes if not is_listed(opcode)))
