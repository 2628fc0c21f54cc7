"""Recomputation as a part of its own: the values of its stage's forward part that a backward part would recompute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from engine.ir import Instruction, Shape
from engine.partition.crossings import PartPlan, costs_nothing
from engine.partition.marks import Cut
from engine.partition.schedule import Part, Schedule
from engine.passes.rewriting import changed


def plans_by_part(
    schedule: Schedule, plans: Sequence[PartPlan], position: Mapping[Instruction, int], cut: Cut
) -> dict[Part, PartPlan]:
    """The plan of each part of a schedule, given the plans by position; recomputations of nothing are omitted."""
    found = {part: plans[schedule.position(part)] for part in schedule.parts if part.kind != "recompute"}
    for part in schedule.parts:
        if part.kind == "recompute":
            backward = schedule.part("backward", part.stage)
            found[part], found[backward] = split(found[backward], position, part.stage, cut)
    return {part: plan for part, plan in found.items() if part.kind != "recompute" or plan.crossings}


def split(plan: PartPlan, position: Mapping[Instruction, int], forward: int, cut: Cut) -> tuple[PartPlan, PartPlan]:
    """The recomputation in a backward part's plan, and the rest of the plan, which reads its results.

    `forward` is the position that is recomputed. New instructions replace the results, since the forward part may
    keep the same values for another part.
    """
    computed = (i for i in plan.copied if isinstance(i.shape, Shape) and not costs_nothing(i))
    again = {i for i in computed if position.get(i) == forward}
    states = [cut.moving[number] for number in plan.states]
    results = [*plan.crossings, *(mark.operands[0] for mark in plan.marks), *states, *plan.last]
    kept = _needed(plan, results, stop=again)
    wanted = [i for i in plan.copied if i in again and i in kept]
    stands_for = {changed(value): value for value in wanted}
    recomputation = _restricted(plan, _needed(plan, wanted, stop=frozenset()))
    recomputation.crossings, recomputation.stands_for = list(stands_for), dict(stands_for)
    backward = _restricted(plan, kept - again)
    backward.reads = [*backward.reads, *stands_for]
    backward.stands_for = dict(stands_for)
    backward.crossings, backward.marks = plan.crossings, plan.marks
    backward.states, backward.last = plan.states, plan.last
    return recomputation, backward


def _needed(plan: PartPlan, roots: Iterable[Instruction], stop: Set[Instruction]) -> set[Instruction]:
    """The instructions a plan computes or reads for some of its values, without the operands of those in `stop`."""
    copied, found = set(plan.copied), set[Instruction]()
    pending = list(roots)
    while pending:
        instruction = pending.pop()
        if instruction not in found:
            found.add(instruction)
            if instruction in copied and instruction not in stop:
                pending += instruction.operands
    return found


def _restricted(plan: PartPlan, needed: set[Instruction]) -> PartPlan:
    return PartPlan(
        plan.position,
        reads=[value for value in plan.reads if value in needed],
        feeds=[parameter for parameter in plan.feeds if parameter in needed],
        shared=[parameter for parameter in plan.shared if parameter in needed],
        variables={parameter: number for parameter, number in plan.variables.items() if parameter in needed},
        copied=[instruction for instruction in plan.copied if instruction in needed],
    )
