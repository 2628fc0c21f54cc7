"""Builds a pipeline from a step with stages: parts of many micro-batches in the order of a schedule, one update."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from engine.frozen import frozen
from engine.ir import Instruction, Module, Shape, topological
from engine.partition.accumulation import Accumulation, Reduction
from engine.partition.crossings import PartPlan, costs_nothing, plan_parts
from engine.partition.loop_state import Outputs
from engine.partition.marks import Cut, cut
from engine.partition.metric_totals import with_totals
from engine.partition.pipeline_loop import PipelineLoop
from engine.partition.pipeline_report import PipelineReport, report_on
from engine.partition.processes import Processes
from engine.partition.repeat import BEFORE_STAGES
from engine.partition.replicas import Replicated, variables_of_replicas
from engine.partition.schedule import Part, Recomputation, Schedule, ScheduleKind, devices_of, make_schedule
from engine.partition.schedule_checks import check_count, check_pipeline, recomputation_of
from engine.partition.stage_options import StageOptions
from engine.partition.stages import Placement, place
from engine.partition.storage import Storage
from engine.passes.rewriting import changed
from engine.passes.run_passes import run_passes


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
    copied = set(plan.copied) - stop
    return set(topological(roots, copied.__contains__))


def _restricted(plan: PartPlan, needed: set[Instruction]) -> PartPlan:
    return PartPlan(
        plan.position,
        reads=[value for value in plan.reads if value in needed],
        feeds=[parameter for parameter in plan.feeds if parameter in needed],
        shared=[parameter for parameter in plan.shared if parameter in needed],
        variables={parameter: number for parameter, number in plan.variables.items() if parameter in needed},
        copied=[instruction for instruction in plan.copied if instruction in needed],
    )


@frozen
class Pipelining:
    """Options of a pipeline (Graphcore's documentation, "Pipelined training").

    `steps` is the gradient accumulation count of each replica, or for inference the micro-batches of an execution;
    `device_mapping` has for each stage its IPU, or a list of those of its concurrent parts; `recomputation_mode` is a
    name of `RecomputationMode`, None where recomputation is not allowed. With `accumulate_outputs` the results of an
    update's micro-batches are summed, otherwise training returns the last one's. `option` names `steps` in messages.
    With `empty_stages` stages may compute nothing. `storage` says where the chip keeps data and `options` are those of
    its libraries; neither changes this program.
    """

    stages: int
    steps: int
    schedule: ScheduleKind = "Grouped"
    device_mapping: Sequence[int | Sequence[int]] | None = None
    replicas: int = 1
    reduction: Reduction = "sum"
    recomputation_mode: str | None = None
    accumulate_outputs: bool = False
    option: str = "gradient_accumulation_steps_per_replica"
    empty_stages: bool = False
    storage: Storage = Storage()
    options: StageOptions = StageOptions()

    def make_schedule(self, training: bool) -> Schedule:
        """The schedule of one replica.

        Raises ConfigurationError for options that contradict each other, UnsupportedOperation for what no schedule
        supports, AccumulationStepError for counts without whole periods.
        """
        devices = devices_of(self.stages, self.device_mapping)
        check_pipeline(self.schedule, self.stages, devices, training=training)
        check_count(self.schedule, devices, self.steps, training=training, option=self.option)
        recomputation = recomputation_of(self.recomputation_mode, self.schedule) if training else "none"
        return make_schedule(self.schedule, devices, self.steps, training=training, recomputation=recomputation)


@frozen
class PipelineSource:
    """The step of one micro-batch that a pipeline was built from, cut into parts and assigned to stages."""

    module: Module
    roles: tuple[str, ...]
    parts: Cut
    placement: Placement

    def plans(self, recompute: Recomputation) -> list[PartPlan]:
        """The plan of each part, by position; with recomputation backward parts run their forward part again."""
        return plan_parts(self.module, self.roles, self.parts, self.placement, recompute=recompute)


@frozen
class Pipelined(Replicated):
    """A replicated step that is a pipeline, with its schedule, its report on stored values, and its source."""

    schedule: Schedule
    report: PipelineReport
    source: PipelineSource
    pipelining: Pipelining


def pipeline(
    module: Module,
    roles: Sequence[str],
    pipelining: Pipelining,
    *,
    once: Collection[int] = (),
    metrics: Collection[int] = (),
    random: Collection[int] = (),
    names: Mapping[int, str] | None = None,
    processes: Processes | None = None,
    training: bool = True,
) -> Pipelined:
    """The step that makes one update from `steps * replicas` of the batches of `module`, which was traced with marks.

    Parameters, `once`, `metrics`, `random`, `names` and `processes` are as for `repeat`. If not `training`, the step
    has no update, and its results have a leading axis of all micro-batches, in order, or are sums. Raises the errors of
    `Pipelining.make_schedule`, and ConfigurationError for steps that cannot be cut at their gradients or into their
    stages.
    """
    schedule = pipelining.make_schedule(training)
    module = run_passes(module, BEFORE_STAGES)
    if processes is not None:
        module = with_totals(module, metrics, names or {}, pipelining.replicas * processes.count)
    parts = cut(module, roles, once, names or {}, training=training)
    outputs: Outputs = "sum" if pipelining.accumulate_outputs else "last" if training else "all"
    return pipelined(
        *(module, roles, pipelining),
        schedule=schedule,
        parts=parts,
        outputs=outputs,
        metrics=metrics,
        random=random,
        names=names or {},
        processes=processes,
    )


def pipelined(
    module: Module,
    roles: Sequence[str],
    pipelining: Pipelining,
    *,
    schedule: Schedule,
    parts: Cut,
    outputs: Outputs,
    metrics: Collection[int],
    random: Collection[int],
    names: Mapping[int, str],
    processes: Processes | None = None,
) -> Pipelined:
    """The pipeline of a module that is inlined and cut into `parts`. Raises ConfigurationError as `pipeline` does."""
    accumulation = Accumulation(pipelining.steps, pipelining.replicas, pipelining.reduction)
    sequential = schedule.kind == "Sequential"
    empty = pipelining.empty_stages
    placement = place(module, roles, parts, pipelining.stages, sequential=sequential, empty_stages=empty, names=names)
    # One micro-batch at a time stores nothing for others: recomputation would only cost time.
    recompute = "none" if sequential else schedule.recomputation
    plans = plan_parts(module, roles, parts, placement, recompute=recompute)
    rows = variables_of_replicas(module, parts, accumulation.replicas, metrics, random, names)
    by_part = plans_by_part(schedule, plans, placement.position, parts)
    loop = PipelineLoop(
        *(module, roles, accumulation, parts, rows, processes), plans=by_part, schedule=schedule, outputs=outputs
    )
    repeated = loop.made()
    report = report_on(
        schedule, placement, plans, roles=roles, cut=parts, storage=pipelining.storage, replicas=pipelining.replicas
    )
    source = PipelineSource(module, tuple(roles), parts, placement)
    return Pipelined(repeated.module, repeated.roles, repeated.rows, schedule, report, source, pipelining)
