"""Loops and branches of a step: executions of each compute set, and states that stand for variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from engine.program.program import Buffer, ComputeSet, Program, Region, Span


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
    for pair in _conditionals(program):
        sides = [[at for at in side if at not in found] for side in pair]
        found.update(min(sides, key=lambda side: sum(cycles[at] for at in side)))
    return found


def updates_of_sums(program: Program) -> set[int]:
    """The compute sets on the sides of conditionals that only an accumulation's last iteration runs.

    Such a side updates variables by others of their size, the sums of gradients, which are written outside of it.
    """
    sets, stands = program.compute_sets, states_in_place(program.compute_sets)

    def variables(spans: Sequence[Span]) -> set[Buffer]:
        found = (stands.get(span.buffer, span.buffer) for span in spans)
        return {buffer for buffer in found if buffer.kind == "variable"}

    def is_update(side: range) -> bool:
        written = {buffer for at in side for buffer in variables(sets[at].writes)}
        others = (sets[at] for at in range(len(sets)) if at not in side and copied(sets[at]) is None)
        summed = {buffer for each in others for buffer in variables(each.writes)} - written
        updates = ((variables(sets[at].writes), variables(sets[at].reads) & summed) for at in side)
        sizes = (({b.shape.dimensions for b in made}, {b.shape.dimensions for b in sums}) for made, sums in updates)
        return any(made & sums for made, sums in sizes)

    return {at for pair in _conditionals(program) for side in pair if is_update(side) for at in side}


def _conditionals(program: Program) -> Iterator[tuple[range, range]]:
    """The compute sets of the two sides of each conditional, those of inner ones first."""
    regions = iter(program.regions)
    for one in regions:
        # A loop has a second region, its body; a conditional has one for each side.
        other = next(regions, None)
        if not one.repeats and other is not None and other.begin == one.end:
            yield range(one.begin, one.end), range(other.begin, other.end)


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
