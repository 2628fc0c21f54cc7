"""Loops and branches of a step: executions of each compute set, and states that stand for variables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.program.program import Buffer, ComputeSet, Program, Region


def runs_of(program: Program) -> list[int]:
    """Number of executions of each compute set in a step; a loop of unknown trip count has one iteration.

    A loop's condition runs once more than its body. Branches count as taken: `skipped` has those of the cheaper side.
    """
    loops = [(region, _body(program, region)) for region in program.regions if region.repeats]
    return [
        prod(_runs(loop, body, at) for loop, body in loops if loop.begin <= at < loop.end)
        for at in range(len(program.compute_sets))
    ]


def skipped(program: Program, cycles: Sequence[int]) -> set[int]:
    """The compute sets on the side with fewer `cycles` of each conditional, whose cost is that of its other side."""
    found: set[int] = set()
    regions = iter(program.regions)
    for one in regions:
        # A loop has a second region, its body; a conditional has one for each side. Inner ones come first.
        other = next(regions, None)
        if one.repeats or other is None or other.begin != one.end:
            continue
        sides = [[at for at in range(side.begin, side.end) if at not in found] for side in (one, other)]
        found.update(min(sides, key=lambda side: sum(cycles[at] for at in side)))
    return found


def unknown_loops(program: Program) -> int:
    """The number of loops with an unknown trip count."""
    return sum(region.repeats and region.iterations is None for region in program.regions)


def _body(program: Program, loop: Region) -> int:
    """The first compute set of a loop's body, which is the outermost region that ends with the loop."""
    inside = (r.begin for r in program.regions if not r.repeats and r.end == loop.end and r.begin >= loop.begin)
    return min(inside, default=loop.begin)


def _runs(loop: Region, body: int, at: int) -> int:
    if loop.iterations is None:
        return 1
    return loop.iterations if at >= body else loop.iterations + 1


def states_in_place(compute_sets: Sequence[ComputeSet]) -> dict[Buffer, Buffer]:
    """The states that are copied from a variable before a loop and back into it after, each with that variable."""
    copies = [pair for each in compute_sets if (pair := copied(each)) is not None]
    back = {source: target for source, target in copies if target.kind == "variable"}
    return {target: source for source, target in copies if back.get(target) is source and target.kind == "arena"}


def copied(compute_set: ComputeSet) -> tuple[Buffer, Buffer] | None:
    """Source and destination of a compute set that only copies an array; None for all others."""
    work_estimate, spans = compute_set.work_estimate, (compute_set.reads, compute_set.writes)
    if set(work_estimate.elements) - {"copy"} or work_estimate.multiply_adds or any(len(each) != 1 for each in spans):
        return None
    source, target = compute_set.reads[0].buffer, compute_set.writes[0].buffer
    return (source, target) if source.shape == target.shape and source is not target else None
