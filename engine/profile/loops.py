"""Number of executions of each compute set in a step: the product of the trip counts of the loops around it."""

from __future__ import annotations

from math import prod

from engine.program.program import Program, Region


def runs_of(program: Program) -> list[int]:
    """Number of executions of each compute set in a step; a loop of unknown trip count has one iteration.

    A loop's condition runs once more than its body. Branches count as taken.
    """
    loops = [(region, _body(program, region)) for region in program.regions if region.repeats]
    return [
        prod(_runs(loop, body, at) for loop, body in loops if loop.begin <= at < loop.end)
        for at in range(len(program.compute_sets))
    ]


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
