"""What a program's step takes altogether, and whether it comes in pieces too small to share out among workers."""

from __future__ import annotations

from math import prod

from engine.program.program import Program

UNKNOWN_TURNS = 10
"""What a loop counts for whose turns show only while it runs."""
SMALL_PIECE = 2000
"""Elements and multiply-adds that take about as long as a barrier, 0.2 microseconds with two workers of a Xeon."""


def effort_of(program: Program) -> int:
    """Elements and multiply-adds of one step, loops turn by turn."""
    return sum(runs * effort for runs, effort in _efforts(program))


def is_fine_grained(program: Program) -> bool:
    """Whether it has loops whose compute sets take so little, on the average, that workers would mostly meet."""
    if not any(region.repeats for region in program.regions):
        return False
    efforts = _efforts(program)
    return sum(runs * effort for runs, effort in efforts) < SMALL_PIECE * sum(runs for runs, _ in efforts)


def _efforts(program: Program) -> list[tuple[int, int]]:
    """How often each compute set runs, and what it takes."""
    loops = [region for region in program.regions if region.repeats]
    return [
        (
            prod(r.turns if r.turns is not None else UNKNOWN_TURNS for r in loops if r.begin <= at < r.end),
            each.effort.multiply_adds + sum(each.effort.elements.values()),
        )
        for at, each in enumerate(program.compute_sets)
    ]
