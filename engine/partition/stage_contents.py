"""The variables and buffers of each stage of a pipeline, in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.ir import Instruction, topological
from engine.partition.crossings import PartPlan
from engine.partition.marks import Cut, accumulator_of, is_mark, is_total
from engine.partition.schedule import Schedule
from engine.partition.stages import Placement


@dataclass(frozen=True, slots=True)
class StageContents:
    """Bytes of one stage: `weights` stay the same during an execution, `states` change with each micro-batch,
    only the update uses `optimizer_state`. `accumulators` hold gradients, in the type in which they are summed,
    `output_sums` accumulated outputs. A variable of several stages counts for the first.
    """

    weights: int
    states: int
    optimizer_state: int
    accumulators: int
    output_sums: int


def contents_of_stages(
    schedule: Schedule, placement: Placement, plans: Sequence[PartPlan], roles: Sequence[str], cut: Cut
) -> list[StageContents]:
    """The contents of each stage, in order."""
    counted: set[Instruction] = set()
    weights, states = [0] * schedule.stages, [0] * schedule.stages
    for plan in plans:
        stage = placement.stage(plan.position)
        used = [p for p in (*plan.shared, *plan.variables) if roles[p["parameter_number"]] == "variable"]
        for parameter in used:
            if parameter not in counted:
                counted.add(parameter)
                sizes = states if is_state(parameter, cut) else weights
                sizes[stage] += parameter.array_shape.bytes
    accumulators, sums = [0] * schedule.stages, [0] * schedule.stages
    stage_of_mark = {}
    for plan in plans:
        for mark in plan.marks:
            stage = stage_of_mark[mark] = placement.stage(plan.position)
            size = mark.array_shape.with_type(accumulator_of(mark)).bytes
            (sums if is_total(mark) else accumulators)[stage] += size
    optimizer = _optimizer_state(schedule.stages, cut, counted, stage_of_mark)
    return [StageContents(*sizes) for sizes in zip(weights, states, optimizer, accumulators, sums, strict=True)]


def is_state(parameter: Instruction, cut: Cut) -> bool:
    """Whether each micro-batch changes a variable."""
    return cut.moving.get(parameter["parameter_number"], parameter) is not parameter


def _optimizer_state(
    stages: int, cut: Cut, counted: set[Instruction], stage_of_mark: Mapping[Instruction, int]
) -> list[int]:
    """The bytes of variables of the update alone, in the stage of their gradients; without gradients in stage 0."""
    sizes = [0] * stages
    for number, value in cut.updates.items():
        sources = topological([value], lambda i: not is_mark(i))
        own = [i for i in sources if i.get("parameter_number") == number and i not in counted]
        found = [stage_of_mark[i] for i in sources if i in stage_of_mark]
        for parameter in own:
            sizes[min(found, default=0)] += parameter.array_shape.bytes
    return sizes
