"""Work estimate of a program's step, and whether its parts are too small to distribute among workers."""

from __future__ import annotations

from math import prod

from engine.machine_code.costs import costs
from engine.program.program import Program

EXECUTION = 4000
"""Multiply-adds that take as long as an execution of the smallest compute set."""
UNKNOWN_ITERATIONS = 10
"""Iterations assumed for a loop whose trip count is known only at run time."""


def work_estimate_of(program: Program) -> int:
    """Elements and multiply-adds of one step, with all iterations of loops."""
    return sum(runs * work_estimate for runs, work_estimate in _work_estimates(program))


def executions_of(program: Program) -> int:
    """Number of executions of compute sets in one step, with all iterations of loops."""
    return sum(runs for runs, _ in _work_estimates(program))


def call_estimate_of(program: Program) -> int:
    """The work of one step and of executing its compute sets, in multiply-adds."""
    return work_estimate_of(program) + EXECUTION * executions_of(program)


def is_fine_grained(program: Program) -> bool:
    """Whether a program has loops whose compute sets do so little that workers would mostly wait at barriers."""

    if not any(region.repeats for region in program.regions):
        return False
    work_estimates = _work_estimates(program)
    least = costs().barrier / costs().small_element
    return sum(runs * work_estimate for runs, work_estimate in work_estimates) < least * executions_of(program)


def _work_estimates(program: Program) -> list[tuple[int, int]]:
    """Executions and work estimate of each compute set."""
    loops = [region for region in program.regions if region.repeats]
    return [
        (
            prod(
                r.iterations if r.iterations is not None else UNKNOWN_ITERATIONS for r in loops if r.begin <= at < r.end
            ),
            each.work_estimate.multiply_adds + sum(each.work_estimate.elements.values()),
        )
        for at, each in enumerate(program.compute_sets)
    ]
