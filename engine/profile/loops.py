"""How often each compute set runs in a step: as often as the loops around it turn."""

from __future__ import annotations

from math import prod

from engine.program.program import Program, Region


def runs_of(program: Program) -> list[int]:
    """For each compute set how often it runs in a step; loops with an unknown trip count turn once.

    What tests whether a loop goes on runs once more than its body. Branches count as taken.
    """
    loops = [(region, _body(program, region)) for region in program.regions if region.repeats]
    return [
        prod(_runs(loop, body, at) for loop, body in loops if loop.begin <= at < loop.end)
        for at in range(len(program.compute_sets))
    ]


def unknown_loops(program: Program) -> int:
    """The number of loops whose trip count does not follow from the program."""
    return sum(region.repeats and region.turns is None for region in program.regions)


def _body(program: Program, loop: Region) -> int:
    """Where the body of a loop begins, after what tests whether to go on: it is the first region to end with it."""
    inside = (r.begin for r in program.regions if not r.repeats and r.end == loop.end and r.begin >= loop.begin)
    return min(inside, default=loop.begin)


def _runs(loop: Region, body: int, at: int) -> int:
    if loop.turns is None:
        return 1
    return loop.turns if at >= body else loop.turns + 1
