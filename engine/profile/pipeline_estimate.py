"""Cost report of a pipeline: a program for each IPU, the cost of its parts, and its schedule in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.frozen import frozen
from engine.ir import Instruction, Module, Shape
from engine.ir.op_names import in_gradient_scope
from engine.partition.crossings import PartPlan
from engine.partition.part_steps import PartStep, part_steps
from engine.partition.schedule import Kind, Part, Schedule
from engine.partition.stage_options import StageOptions
from engine.profile.ipu_programs import Stretch, joined
from engine.profile.links import AllReduce, Selection, all_reduce_each, transfer_cycles, waiting_together
from engine.profile.mapping import spread
from engine.profile.options import DEFAULT_ASSUMPTIONS, GRADIENT_ACCUMULATORS, Assumptions, with_library_options
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.remote import RemoteMemory
from engine.profile.schedule_timing import ScheduleTiming, lay_out
from engine.profile.step_costs import ComputeSetCost, IpuEstimate, PartCost, PipelineEstimate
from engine.profile.streams import host_cycles, queue_bytes, samples_of
from engine.profile.vertices import kind_of, vertex_cycles
from engine.program.program import Label, Program
from engine.target import Target

if TYPE_CHECKING:
    from engine.partition.pipeline import PipelineSource

Build = Callable[[Module, list[str], dict[int, np.ndarray]], Program]
"""A function that builds a program from a module, its roles and its constants: `engine.compile.build_program`."""
Rings = Mapping[Instruction, int]
"""The values that wait on an IPU, each with its number of micro-batches."""


@frozen
class PipelineStep:
    """A pipeline to be estimated: its source, its schedule, the values of its constants.

    With `offload_activations` the waiting values are in streaming memory. Optimizer state and sums of gradients are
    there if `Assumptions.offloaded` names them. Weights are always on the tiles. `options` are the library options of
    each part. `labels` are the names of the source's variables in reports, by the numbers of its parameters.
    """

    name: str
    source: PipelineSource
    schedule: Schedule
    constants: Mapping[int, Any]
    offload_activations: bool = False
    options: StageOptions = StageOptions()
    labels: Mapping[int, Label] = field(default_factory=dict)


def estimate_pipeline(
    pipeline: PipelineStep,
    target: Target,
    build: Build,
    replicas: int = 1,
    assumptions: Assumptions = DEFAULT_ASSUMPTIONS,
) -> Estimate:
    """Cost report of one execution of a pipeline on its IPUs, each a `target`.

    Memory and compute sets are those of the fullest IPU, whose parts run once for a micro-batch. Cycles, samples and
    transfers are those of the whole pipeline; the field `pipeline` has all IPUs.
    """
    return pipeline_estimator(pipeline, build, replicas, assumptions)(target)


def pipeline_estimator(
    pipeline: PipelineStep, build: Build, replicas: int = 1, assumptions: Assumptions = DEFAULT_ASSUMPTIONS
) -> Callable[[Target], Estimate]:
    """A function that returns a pipeline's cost report on a chip. Its first call builds the programs."""
    built: list[_Estimation] = []

    def on(target: Target) -> Estimate:
        if not built:
            built.append(_Estimation(pipeline, target, build, replicas, assumptions))
        return built[0].on(target).run()

    return on


class _Estimation:
    def __init__(
        self, pipeline: PipelineStep, target: Target, build: Build, replicas: int, assumptions: Assumptions
    ) -> None:
        self.name, self.schedule, self.source = pipeline.name, pipeline.schedule, pipeline.source
        self.constants, self.target, self.build = pipeline.constants, target, build
        self.replicas, self.assumptions = replicas, assumptions
        self.streams, self.options = pipeline.offload_activations, pipeline.options
        self.labels = pipeline.labels
        source = self.source
        self.plans = source.plans(self.schedule.recomputation)
        steps = part_steps(source.module, source.roles, source.parts, source.placement, self.plans)
        self.built = [(step, self._program(step)) for step in steps]
        self._begin()

    def _begin(self) -> None:
        ipus = len(self.schedule.ipus)
        self.external_sync = self.target.external_sync_cycles(ipus) if ipus > 1 else 0
        self.costs: dict[tuple[Kind, int], PartCost] = {}
        self.compute_sets: list[ComputeSetCost] = []
        self.remote: dict[int, RemoteMemory] = {}

    def on(self, target: Target) -> _Estimation:
        """The estimation of the same programs on another chip."""
        other = copy(self)
        other.target = target
        other._begin()
        return other

    def run(self) -> Estimate:
        schedule, found = self.schedule, {}
        for ipu in schedule.ipus:
            found[ipu] = self._ipu(ipu)
        layout = lay_out(schedule, self.costs)
        busy, waits = layout.busy(update=True), layout.waits()
        ipus = tuple(
            IpuEstimate(
                ipu,
                self._stages_on(ipu),
                one,
                0 if self.streams else stashed,
                busy[ipu],
                waits[ipu],
                sum(self.remote[ipu].bytes.values()) + (stashed if self.streams else 0),
            )
            for ipu, (one, stashed) in found.items()
        )
        fullest = max((one for one, _ in found.values()), key=lambda each: each.memory.peak_fullest)
        fed, returned, samples = self._host()
        pipeline = self._pipeline(layout, ipus)
        return replace(
            fullest,
            program_name=self.name,
            replicas=self.replicas,
            between_ipus=pipeline.between_ipus,
            host_bytes=(fed, returned),
            host=host_cycles(fed, returned, self.target),
            samples_per_replica=samples,
            assumptions=replace(
                fullest.assumptions, overlapped_io=all(each.estimate.assumptions.overlapped_io for each in ipus)
            ),
            assumed=tuple(sorted({opcode for each in ipus for opcode in each.estimate.assumed})),
            unknown_loops=sum(each.estimate.unknown_loops for each in ipus),
            pipeline=pipeline,
        )

    def _pipeline(self, layout: ScheduleTiming, ipus: tuple[IpuEstimate, ...]) -> PipelineEstimate:
        critical = layout.critical
        links = sum(cost.links for cost in critical)
        return PipelineEstimate(
            schedule=self.schedule.kind,
            stages=self.schedule.stages,
            micro_batches=self.schedule.micro_batches,
            training=self.schedule.training,
            parts=tuple(self.costs.values()),
            rows=layout.rows,
            ipus=ipus,
            costs=tuple(self.compute_sets),
            compute=sum(cost.compute for cost in critical),
            exchange=sum(cost.exchange + cost.streaming for cost in critical) + links,
            sync=sum(cost.sync for cost in critical),
            period=layout.period,
            between_ipus=(links, sum(cost.external_sync for cost in critical)),
            critical=critical,
            gradient_bytes=tuple(self._reduction(stage)[0] for stage in range(self.schedule.stages)),
            gradient_sums=tuple(self._gradient_sums(stage) for stage in range(self.schedule.stages)),
        )

    def _program(self, step: PartStep) -> Program:
        numbers = [number for number, role in enumerate(step.roles) if role == "constant"]
        program = self.build(step.module, step.roles, {n: self.constants[step.keys[n][1]] for n in numbers})
        for number, buffer in program.variables.items():
            buffer.label = self.labels.get(step.keys[number][1])
        return program

    def _stages_on(self, ipu: int) -> tuple[int, ...]:
        return tuple(stage for stage, ipus in enumerate(self.schedule.devices) if ipu in ipus)

    def _ipu(self, ipu: int) -> tuple[Estimate, int]:
        """Record the costs of an IPU's parts; return its cost report and the bytes that wait on it."""
        stages = self._stages_on(ipu)
        rings = self._rings(ipu)
        built = [(step, program) for step, program in self.built if step.stage in stages]
        program, stretches = joined(f"{self.name}, IPU {ipu}", built, {} if self.streams else rings)
        planning = [options for stretch in stretches for options in self._planning(stretch)]
        found = estimate(program, self.target, assumptions=self.assumptions, planning=planning)
        self.remote[ipu] = found.remote
        for stretch in stretches:
            self._note(ipu, stretch, found.costs[stretch.begin : stretch.end], rings)
        return found, sum(value.array_shape.bytes * depth for value, depth in rings.items())

    def _kinds(self, stretch: Stretch) -> list[Kind]:
        """The kind of part of each compute set of a stretch; recomputation may be a row of its own."""
        kind = stretch.step.kind
        if kind != "backward" or not self.schedule.recomputes_apart(stretch.step.stage):
            return [kind] * len(stretch.compute_sets)
        return ["backward" if in_gradient_scope(each.op_name) else "recompute" for each in stretch.compute_sets]

    def _planning(self, stretch: Stretch) -> list[Assumptions]:
        """The options for planning each compute set of a stretch."""
        kinds, stage = self._kinds(stretch), stretch.step.stage
        found = {kind: with_library_options(self.assumptions, self.options.of(kind, stage)) for kind in set(kinds)}
        return [found[kind] for kind in kinds]

    def _note(self, ipu: int, stretch: Stretch, costs: Sequence[ComputeSetCost], rings: Rings) -> None:
        """Record a part's cost, and recomputation separately. Parts of a concurrent stage count with equal cost."""
        step, share = stretch.step, len(set(self.schedule.devices[stretch.step.stage]))
        if (step.kind, step.stage) in self.costs:
            return
        split: dict[Kind, list[ComputeSetCost]] = {step.kind: []}
        if step.kind == "backward" and self.schedule.recomputes_apart(step.stage):
            split["recompute"] = []
        for each, kind in zip(costs, self._kinds(stretch), strict=True):
            split[kind].append(each)
        runs = 1 if step.kind == "update" else self.schedule.micro_batches
        self.compute_sets += [_times(cost, runs) for cost in costs]
        for kind, of_kind in split.items():
            cost = PartCost(
                kind,
                step.stage,
                compute=ceil(sum(c.compute for c in of_kind) / share),
                exchange=ceil(sum(c.exchange for c in of_kind) / share),
                sync=sum(c.sync for c in of_kind) + self.external_sync,
                external_sync=self.external_sync,
            )
            self.costs[kind, step.stage] = self._with_transfers(cost, ipu, rings)

    def _with_transfers(self, cost: PartCost, ipu: int, rings: Rings) -> PartCost:
        """Add the transfers from other IPUs and from this one's stash, or the all-reduce of gradients of an update."""
        if cost.kind == "update":
            size, reduction = self._reduction(cost.stage)
            links, syncs = self._cycles(reduction.transfer), self._cycles(reduction.syncs)
            received = size if links else 0
            streaming = self._streaming_of_update(cost.stage, ipu)
            return replace(
                cost,
                links=links,
                sync=cost.sync + syncs,
                external_sync=cost.external_sync + syncs,
                received_bytes=received,
                streaming=streaming,
            )
        if cost.kind == "recompute":
            return cost
        plan = self.plans[self.schedule.position(self.schedule.part(cost.kind, cost.stage))]
        selection = Selection(self.assumptions.optimizations.selection_order, len(self.schedule.ipus))
        arriving = [v for v in plan.reads if ipu not in self._devices_of(v) and self._first_on(v, ipu) is plan]
        sizes = [(value.array_shape.bytes, self._devices_of(value)[0]) for value in arriving]
        more = self.external_sync * (self._copies(size for size, _ in sizes) - 1)
        waiting = [value.array_shape for value in (*plan.reads, *plan.crossings) if value in rings]
        copied, streamed = ([], waiting) if self.streams else (waiting, [])
        return replace(
            cost,
            compute=cost.compute + sum(elementwise_cycles("copy", shape, self.target) for shape in copied),
            sync=cost.sync + more + (self.target.superstep_sync if copied else 0),
            external_sync=cost.external_sync + more,
            streaming=self._streamed(sum(shape.bytes for shape in streamed) + 2 * self._streamed_sums(cost)),
            links=sum(transfer_cycles(size, sender, ipu, self.target, selection) for size, sender in sizes),
            received_bytes=sum(size for size, _ in sizes),
        )

    def _copies(self, sizes: Iterable[int]) -> int:
        """Number of copies in which arrays come from other IPUs, at least one; each has a sync."""
        return max(1, len(waiting_together(sizes, self.assumptions.optimizations.inter_ipu_copies_bytes)))

    def _streamed_sums(self, cost: PartCost) -> int:
        """Bytes of the sums of gradients that a part reads from streaming memory."""
        is_offloaded = cost.kind == "backward" and GRADIENT_ACCUMULATORS in self.assumptions.offloaded
        return self._reduction(cost.stage)[0] if is_offloaded else 0

    def _streaming_of_update(self, stage: int, ipu: int) -> int:
        """Cycles of streaming in an IPU's update, without those of backward parts; its first stage has all."""
        remote = self.remote[ipu]
        backward = sum(2 * self._streamed_sums(PartCost("backward", each)) for each in self._stages_on(ipu))
        if stage != self._stages_on(ipu)[0]:
            return 0
        return self._cycles(remote.gathered_bytes / self.target.link_bytes_per_second) + self._streamed(
            max(0, remote.moved_bytes - backward)
        )

    def _streamed(self, size: int) -> int:
        return self._cycles(size / self.target.streaming_memory_bytes_per_second)

    def _reduction(self, stage: int) -> tuple[int, AllReduce]:
        """Bytes of a stage's sums of gradients, and the cost of their all-reduce over replicas."""
        sums = self._gradient_sums(stage)
        syncless = self.assumptions.optimizations.syncless_collectives
        return sum(sums), all_reduce_each(sums, self.replicas, self.target, len(self.schedule.ipus), syncless)

    def _gradient_sums(self, stage: int) -> tuple[int, ...]:
        """Bytes of each all-reduce of a stage."""
        sizes = (
            result.array_shape.bytes
            for step, _ in self.built
            if (step.kind, step.stage) == ("backward", stage)
            for key, result in zip(step.made, step.module.results, strict=True)
            if key[0] == "accumulator"
        )
        return waiting_together(sizes, self.assumptions.optimizations.cross_replica_sum_bytes)

    def _cycles(self, seconds: float) -> int:
        return ceil(seconds * self.target.clock_hz)

    def _rings(self, ipu: int) -> dict[Instruction, int]:
        """The values that wait on an IPU for a later part of it, each with its number of micro-batches."""
        found: dict[Instruction, int] = {}
        stages = self._stages_on(ipu)
        sequential = self.schedule.kind == "Sequential"
        for plan in self.plans:
            if self.source.placement.stage(plan.position) not in stages:
                continue
            for value in plan.reads:
                first = self._first_on(value, ipu)
                if first is plan or (sequential and value.opcode == "parameter"):
                    continue
                depth = self.schedule.depth(self._part(first.position), self._part(plan.position))
                found[value] = max(found.get(value, 0), depth)
        return found

    def _first_on(self, value: Instruction, ipu: int) -> PartPlan:
        """The part of an IPU that computes a value, or else the first one that reads it."""
        devices, stage_at = self.schedule.devices, self.source.placement.stage
        if ipu in self._devices_of(value):
            return self.plans[self._source(value)]
        return next(plan for plan in self.plans if value in plan.reads and ipu in devices[stage_at(plan.position)])

    def _source(self, value: Instruction) -> int:
        return max(self.source.placement.position[value], 0)

    def _devices_of(self, value: Instruction) -> tuple[int, ...]:
        """The IPUs that compute a value."""
        return self.schedule.devices[self.source.placement.stage(self._source(value))]

    def _part(self, position: int) -> Part:
        kind: Kind = "forward" if position < self.schedule.stages else "backward"
        return self.schedule.part(kind, self.source.placement.stage(position))

    def _host(self) -> tuple[int, int, int]:
        """Bytes from the host, bytes to the host, and samples of an execution."""
        micro_batches, module = self.schedule.micro_batches, self.source.module
        feeds = [p.array_shape for p in module.entry.parameters if self.source.roles[p["parameter_number"]] == "feed"]
        returned = sum(value.array_shape.bytes for value in self.source.parts.outputs.values())
        samples = [samples_of(program) for step, program in self.built if step.kind == "forward" and program.queues]
        rows = next((shape.dimensions[0] for shape in feeds if shape.rank), max(samples, default=1))
        times = 1 if self.schedule.training else micro_batches
        fed, returned = micro_batches * sum(shape.bytes for shape in feeds), times * returned
        for step, program in self.built:
            taken, given = queue_bytes(program)
            runs = 1 if step.kind == "update" else micro_batches
            fed, returned = fed + runs * taken, returned + runs * given
        return fed, returned, micro_batches * rows


def elementwise_cycles(opcode: str, shape: Shape, target: Target) -> int:
    """Cycles of an operation on each element of an array on its own tiles, without the sync."""
    run = spread(shape.elements, shape.dtype.itemsize, target)
    return vertex_cycles(((opcode, kind_of(shape.element_type)),), run.per_tile, target)


def _times(cost: ComputeSetCost, runs: int) -> ComputeSetCost:
    return replace(
        cost,
        compute=runs * cost.compute,
        exchange=runs * cost.exchange,
        sync=runs * cost.sync,
        runs=runs * cost.runs,
    )
