"""Cost of each layer of a step, and bytes between layers, by the name scopes of the unsplit program's cost report.

The step is traced with a stage for each call of a layer: scope k belongs to layer k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.ir import Instruction, Module
from engine.ir.op_names import in_gradient_scope, stage_in
from engine.partition.crossings import PartPlan
from engine.partition.marks import accumulator_of, is_mark
from engine.partition.part_steps import stage_of_mark, update_stages
from engine.partition.pipeline import PipelineSource
from engine.passes.rewriting import rewrite
from engine.profile.options import DEFAULT_ASSUMPTIONS, Assumptions
from engine.profile.pipeline_estimate import Build, elementwise_cycles
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.stage_balance import Crossing, LayerCost, LayerProfile
from engine.program.program import Program
from engine.target import Target


@dataclass(slots=True)
class _Layer:
    name: str
    cycles: dict[str, int] = field(default_factory=lambda: {"forward": 0, "backward": 0, "update": 0})
    always_bytes: int = 0
    gradient_bytes: int = 0

    def cost(self) -> LayerCost:
        cycles = self.cycles
        return LayerCost(
            self.name, cycles["forward"], cycles["backward"], self.always_bytes, cycles["update"], self.gradient_bytes
        )


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
    layers = [_Layer(name) for name in names]
    unsplit = without_marks(source.module)
    program = build(unsplit, list(source.roles), dict(constants))
    found = estimate(program, target, assumptions=assumptions)
    updates = update_stages(source.module, source.parts, source.placement)
    plans = source.plans(recompute="none")
    owners = _owners(source, plans) | updates
    _attribute(layers, program, found, source, updates)
    for number, layer in owners.items():
        layers[layer].always_bytes += source.module.entry.parameters[number].array_shape.bytes
    for mark in source.parts.marks:
        layer = stage_of_mark(mark, source.placement)
        total = mark.array_shape.with_type(accumulator_of(mark))
        layers[layer].always_bytes += total.bytes
        layers[layer].gradient_bytes += total.bytes
        layers[layer].cycles["backward"] += elementwise_cycles("add", total, target) + target.superstep_sync
    training = bool(source.parts.marks)
    crossings = _crossings(plans, source, target)
    return LayerProfile(tuple(each.cost() for each in layers), crossings, uncut, training), found


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
    layers: list[_Layer], program: Program, found: Estimate, source: PipelineSource, owners: Mapping[int, int]
) -> None:
    """Add the cycles of each compute set to its part."""
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
        before = min(layer, len(layers) - 1)
        layers[before].cycles[kind] += cost.cycles


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
