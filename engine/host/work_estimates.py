"""Work estimate of a program's step, and whether its parts are too small to distribute among workers."""

from __future__ import annotations

from math import prod

from engine.machine_code.costs import costs
from engine.program.program import Program

EXECUTION = 4000
"""Multiply-adds that take as long as an execution of the smallest compute set."""
UNKNOWN_ITERATIONS = 10
"""Iterations assumed for a loop whose trip count is known only at run time."""


def step_estimate(program: Program) -> tuple[int, int]:
    """Elements and multiply-adds of one step, and executions of its compute sets, with all iterations of loops."""
    loops = [region for region in program.regions if region.repeats]
    runs = [
        prod(UNKNOWN_ITERATIONS if r.iterations is None else r.iterations for r in loops if r.begin <= at < r.end)
        for at in range(len(program.compute_sets))
    ]
    return sum(k * each.work_estimate.total for k, each in zip(runs, program.compute_sets, strict=True)), sum(runs)


def call_estimate_of(program: Program) -> int:
    """The work of one step and of executing its compute sets, in multiply-adds."""
    work, executions = step_estimate(program)
    return work + EXECUTION * executions


def is_fine_grained(program: Program) -> bool:
    """Whether a program has loops whose compute sets do so little that workers would mostly wait at barriers."""
    work, executions = step_estimate(program)
    least = costs().barrier / costs().small_element
    return any(region.repeats for region in program.regions) and work < least * executions
