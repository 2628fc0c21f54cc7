"""Proposes the stages of a pipeline: layers balanced by estimate within tile memory, checked by a cost report.

Cost of each layer of a step, and bytes between layers, by the name scopes of the unsplit program's cost report.

The step is traced with a stage for each call of a layer: scope k belongs to layer k.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from engine.errors import ConfigurationError, OutOfTileMemory
from engine.ir import Instruction, Module
from engine.ir.op_names import in_gradient_scope, stage_in
from engine.partition.crossings import PartPlan
from engine.partition.marks import accumulator_of, cut, is_mark
from engine.partition.part_steps import stage_of_mark, update_stages
from engine.partition.pipeline import PipelineSource
from engine.partition.repeat import BEFORE_STAGES
from engine.partition.schedule import Recomputation, ScheduleKind
from engine.partition.stages import place, restaged
from engine.passes.rewriting import rewrite
from engine.passes.run_passes import run_passes
from engine.profile.options import DEFAULT_ASSUMPTIONS, Assumptions
from engine.profile.pipeline_estimate import Build, PipelineStep, elementwise_cycles, estimate_pipeline
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.stage_balance import Balance, Balancer, Crossing, LayerCost, LayerProfile, usable_bytes
from engine.program.program import Program
from engine.shown import Shown
from engine.target import Target


def layer_profile(
    source: PipelineSource,
    constants: Mapping[int, Any],
    names: Sequence[str],
    target: Target,
    *,
    build: Build,
    uncut: frozenset[int] = frozenset(),
    assumptions: Assumptions = DEFAULT_ASSUMPTIONS,
) -> tuple[LayerProfile, Estimate]:
    """Profile of the layers `names` of a step with the parts of `source`, and the cost report of the unsplit step.

    Instructions without a scope belong to the layer in which they are placed, the loss to the last layer. An update
    belongs to the layer of its gradient.
    """
    cycles, always, gradients = [Counter[str]() for _ in names], [0] * len(names), [0] * len(names)
    unsplit = without_marks(source.module)
    program = build(unsplit, list(source.roles), dict(constants))
    found = estimate(program, target, assumptions=assumptions)
    updates = update_stages(source.module, source.parts, source.placement)
    plans = source.plans(recompute="none")
    owners = _owners(source, plans) | updates
    _attribute(cycles, program, found, source, updates)
    for number, layer in owners.items():
        always[layer] += source.module.entry.parameters[number].array_shape.bytes
    for mark in source.parts.marks:
        layer = stage_of_mark(mark, source.placement)
        total = mark.array_shape.with_type(accumulator_of(mark))
        always[layer] += total.bytes
        gradients[layer] += total.bytes
        cycles[layer]["backward"] += elementwise_cycles("add", total, target) + target.superstep_sync
    training = bool(source.parts.marks)
    crossings = _crossings(plans, source, target)
    layers = tuple(
        LayerCost(name, its["forward"], its["backward"], held, its["update"], summed)
        for name, its, held, summed in zip(names, cycles, always, gradients, strict=True)
    )
    return LayerProfile(layers, crossings, uncut, training), found


def without_marks(module: Module) -> Module:
    """The module without the marks between stages."""
    return rewrite(module, lambda _, each: each.operands[0] if is_mark(each) else None)


def _owners(source: PipelineSource, plans: Sequence[PartPlan]) -> dict[int, int]:
    """The first layer that reads or updates each variable."""
    owners: dict[int, int] = {}
    for plan in plans:
        numbers = [p["parameter_number"] for p in (*plan.shared, *plan.variables)] + plan.states
        for number in numbers:
            if source.roles[number] == "variable":
                owners.setdefault(number, source.placement.stage(plan.position))
    return owners


def _attribute(
    cycles: list[Counter[str]], program: Program, found: Estimate, source: PipelineSource, owners: Mapping[int, int]
) -> None:
    """Add the cycles of each compute set to its part of a layer, by kind."""
    placed = _by_name(source)
    updates = {program.variables[n]: layer for n, layer in owners.items() if n in program.variables}
    before = 0
    for compute_set, cost in zip(program.compute_sets, found.costs, strict=True):
        name = compute_set.op_name
        layer, kind = stage_in(name), "backward" if in_gradient_scope(name) else "forward"
        if layer is None and name in placed:
            layer, kind = placed[name]
        if layer is None:
            updated = [updates[span.buffer] for span in compute_set.writes if span.buffer in updates]
            layer, kind = (updated[0], "update") if updated else (before, "update" if source.parts.marks else kind)
        before = min(layer, len(cycles) - 1)
        cycles[before][kind] += cost.cycles


def _by_name(source: PipelineSource) -> dict[str, tuple[int, str]]:
    """The layer and the kind of part of instructions without a scope (losses, metrics), by op_name."""
    placement, first = source.placement, dict[str, int]()
    for each, at in placement.position.items():
        if each.op_name and stage_in(each.op_name) is None:
            # One operation may compute a loss and its gradient; most of it is forward.
            first[each.op_name] = min(at, first.get(each.op_name, at))
    return {
        name: (placement.stage(max(at, 0)), "forward" if at < placement.stages else "backward")
        for name, at in first.items()
    }


def _crossings(plans: Sequence[PartPlan], source: PipelineSource, target: Target) -> tuple[Crossing, ...]:
    readers: dict[Instruction, list[int]] = {}
    for plan in plans:
        for value in plan.reads:
            readers.setdefault(value, []).append(plan.position)
    placement, found = source.placement, []
    for value, positions in readers.items():
        if value.opcode == "parameter":
            continue  # the old value of a variable is small, and is on the IPU that reads it
        made = max(placement.position[value], 0)
        forward = tuple(placement.stage(p) for p in positions if p < placement.stages)
        backward = tuple(placement.stage(p) for p in positions if p >= placement.stages)
        shape = value.array_shape
        copy = elementwise_cycles("copy", shape, target)
        is_gradient = made >= placement.stages
        found.append(Crossing(shape.bytes, placement.stage(made), forward, backward, is_gradient, copy))
    return tuple(found)


ATTEMPTS = 4
"""Number of cuts that cost reports check before stages count as too large: layers' estimates ignore single tiles."""
WIDTH = 88
MOST_STAGES = 64
"""Largest number of IPUs tried in the search for the nearest one that fits."""


@dataclass(frozen=True)
class TracedLayers:
    """A step traced with a stage for each call of a layer: scope k is that of `names[k]`.

    `once` are the numbers of the optimizer's parameters. `uncut` are layers at which no stage may begin.
    """

    module: Module
    roles: tuple[str, ...]
    constants: Mapping[int, Any]
    names: tuple[str, ...]
    once: Collection[int] = ()
    uncut: frozenset[int] = frozenset()
    training: bool = True


@dataclass(frozen=True)
class PlanOptions:
    """A requested pipeline: `stages`, each on an IPU of its own, a schedule, and micro-batches of an execution."""

    stages: int
    micro_batches: int
    schedule: ScheduleKind = "Grouped"
    recomputation: Recomputation = "none"
    assumptions: Assumptions = Assumptions()


@dataclass(frozen=True, repr=False)
class StagePlan(Shown):
    """A proposal: `stages[k]` is the stage of layer k.

    `estimate` is the cost report of the pipeline, `unsplit` that of a single micro-batch on one IPU. `profile` has the
    costs of layers. `balance` is the estimate from which the cuts were chosen.
    """

    names: tuple[str, ...]
    balance: Balance
    estimate: Estimate
    unsplit: Estimate
    profile: LayerProfile

    @property
    def stages(self) -> tuple[int, ...]:
        return tuple(self.balance.stage_of(layer) for layer in range(len(self.names)))

    @property
    def bubble_share(self) -> float:
        """The mean share of an execution, without the update, in which an IPU waits."""
        assert self.estimate.pipeline is not None
        return self.estimate.pipeline.bubble_share

    def table(self) -> str:
        """A line for each stage: layers, cycles of a micro-batch, fullest tile, share of the cycles; then bubbles."""
        pipeline = self.estimate.pipeline
        assert pipeline is not None
        target = self.estimate.target
        what = "training" if pipeline.training else "inference"
        lines = [
            f"Plan for {pipeline.stages} IPUs ({target.title}), {what}, {pipeline.schedule} schedule, "
            f"{pipeline.micro_batches} micro-batches",
            f"{'stage':>5} {'layers':<34} {'forward':>10} {'backward':>10} {'fullest tile':>18} {'share':>6}",
        ]
        works = pipeline.works
        for each, ipu, work in zip(self.balance.stages, pipeline.ipus, works, strict=True):
            backward = sum(pipeline.part(kind, each.stage).cycles for kind in ("recompute", "backward"))
            held, capacity = ipu.estimate.memory.peak_fullest, target.bytes_per_tile
            verdict = "fits" if ipu.fits else "too much"
            lines.append(
                f"{each.stage:>5} {_layers(self.names[each.first : each.end]):<34} "
                f"{pipeline.part('forward', each.stage).cycles:>10,} {backward:>10,} "
                f"{held / capacity:>9.1%} {verdict:>8} {work / max(1, sum(works)):>6.0%}"
            )
        waits = ", ".join(f"{share:.0%}" for share in pipeline.bubbles.values())
        gain = self.estimate.samples_per_second / self._alone()
        words = (
            f"A micro-batch takes {pipeline.period:,} cycles while the pipeline is full, an execution "
            f"{pipeline.cycles:,}; IPUs wait {self.bubble_share:.0%} of it ({waits}). "
            f"{self.estimate.samples_per_second:,.0f} samples/s, {gain:.1f} times those of one IPU with the same "
            f"updates, which {'holds the model, too' if self.unsplit.fits else 'does not hold the model'}."
        )
        return "\n".join([*lines, *wrap(words, WIDTH)])

    def _alone(self) -> float:
        """Samples per second of one IPU with the same updates, if its memory were large enough."""
        pipeline, layers = self.estimate.pipeline, self.profile.layers
        assert pipeline is not None
        work = pipeline.micro_batches * sum(each.forward + each.backward for each in layers)
        cycles = work + sum(each.update for each in layers)
        return self.estimate.samples_per_replica * self.estimate.target.clock_hz / (cycles + self.estimate.host)


def plan_stages(traced: TracedLayers, options: PlanOptions, target: Target, build: Build) -> StagePlan:
    """Find the cuts with the shortest period that fit.

    Raises ConfigurationError for fewer layers than stages. Raises OutOfTileMemory if no cuts fit, with the nearest
    number of IPUs that would.
    """
    most = len(traced.names) - len(traced.uncut)
    if options.stages > most:
        raise ConfigurationError(
            f"Expected layers that can be cut into {options.stages} stages. Received: {len(traced.names)}, which can "
            f"be cut into {most}. Nearest legal number: {most}."
        )
    step = _Layers(traced)
    source = step.source(dict(enumerate(range(len(traced.names)))), len(traced.names), sequential=True)
    profile, unsplit = layer_profile(
        source, traced.constants, traced.names, target, build=build, uncut=traced.uncut, assumptions=options.assumptions
    )
    limit, found = float(usable_bytes(target)), None
    for _ in range(ATTEMPTS):
        balance = _balancer(profile, options, target).best(limit)
        if balance is None:
            break
        found = step.estimated(balance, options, target, build)
        if found.fits:
            return StagePlan(traced.names, balance, found, unsplit, profile)
        # Estimates were too low by the factor `over`: divide the limit by it and try again.
        largest = max(stage.bytes for stage in balance.stages)
        over = found.memory.peak_fullest / target.bytes_per_tile
        limit = min(limit, largest) / max(over, 1.02)
    raise _too_large(profile, options, target, limit, found)


def _balancer(profile: LayerProfile, options: PlanOptions, target: Target) -> Balancer:
    order = options.assumptions.optimizations.selection_order
    schedule, count = options.schedule, options.micro_batches
    return Balancer(
        profile,
        options.stages,
        target,
        kind=schedule,
        micro_batches=count,
        recomputation=options.recomputation,
        order=order,
    )


def _too_large(
    profile: LayerProfile, options: PlanOptions, target: Target, limit: float, found: Estimate | None
) -> OutOfTileMemory:
    most = min(MOST_STAGES, len(profile.layers) - len(profile.uncut))
    unit = options.micro_batches // options.stages or 1
    larger = (replace(options, stages=n, micro_batches=unit * n) for n in range(options.stages + 1, most + 1))
    nearest = next((each.stages for each in larger if _balancer(profile, each, target).best(limit)), None)
    if nearest:
        advice = f"Nearest num_ipus that fits, by estimate: {nearest}."
    else:
        advice = f"No number of IPUs up to {most} holds it: use a smaller batch."
    again = "" if options.recomputation != "none" else ", recomputation (IPUConfig.allow_recompute)"
    return OutOfTileMemory(
        f"Expected stages that fit into the tiles of {options.stages} IPUs, {target.bytes_per_tile:,} bytes on each "
        f"of {target.name}. Received: {_fullest(profile, options, target, found)}. {advice} Or use smaller "
        f"micro-batches{again}, or PipelineSchedule.Interleaved or Sequential, in which fewer activations wait."
    )


def _fullest(profile: LayerProfile, options: PlanOptions, target: Target, found: Estimate | None) -> str:
    """Words for the fullest IPU of the last cuts tried, or else of the cuts with the shortest period by estimate."""
    if found is not None and found.pipeline is not None:
        each = max(found.pipeline.ipus, key=lambda ipu: ipu.estimate.memory.peak_fullest)
        memory = each.estimate.memory
        where = each.estimate.costs[memory.peak_at].label if each.estimate.costs else "the start"
        return f"{memory.peak_fullest:,} bytes on tile {memory.peak_tile} of IPU {each.ipu} at {where}"
    balance = _balancer(profile, options, target).best()
    assert balance is not None
    stage = max(balance.stages, key=lambda stage: stage.bytes)
    return (
        f"an estimate of {stage.bytes // target.tiles:,} bytes on each tile of IPU {stage.stage}, "
        f"{stage.stash_bytes // target.tiles:,} of them activations that wait"
    )


class _Layers:
    """A traced step that can be placed in stages several times."""

    def __init__(self, traced: TracedLayers) -> None:
        self.traced = traced
        self.module = run_passes(traced.module, BEFORE_STAGES)
        self.parts = cut(self.module, traced.roles, traced.once, {}, training=traced.training)

    def source(self, stage_of: Mapping[int, int], stages: int, *, sequential: bool) -> PipelineSource:
        """The step with its layers in the stages of `stage_of`."""
        module = self.module
        with restaged(module, stage_of):
            placement = place(module, self.traced.roles, self.parts, stages, sequential=sequential, empty_stages=True)
        return PipelineSource(module, self.traced.roles, self.parts, placement)

    def estimated(self, balance: Balance, options: PlanOptions, target: Target, build: Build) -> Estimate:
        """Cost report of the step in these stages."""
        stage_of = {layer: balance.stage_of(layer) for layer in range(len(self.traced.names))}
        source = self.source(stage_of, options.stages, sequential=options.schedule == "Sequential")
        step = PipelineStep(self.module.name, source, balance.schedule, self.traced.constants)
        return estimate_pipeline(step, target, build, assumptions=options.assumptions)


def _layers(names: Sequence[str]) -> str:
    text = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)})"
    return text if len(text) <= 34 else text[:31] + "..."
