"""Counters of loops whose bodies slice arrays by them, as recurrent layers slice their inputs, outputs and lists.

A chip has a loop's counter on one tile. Each iteration increments it there, and sends it to the tiles of the sliced
arrays: a superstep with an exchange of its own. Slices at one iteration share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.profile.exchange import exchange_cycles, slices_by_counter
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import vertex_cycles
from engine.program.program import Program
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
