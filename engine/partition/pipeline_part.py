"""One part of a pipeline for one micro-batch: from the loop's state before it to the elements it changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.ir import Instruction
from engine.ir.builder import Builder
from engine.partition.crossings import PartPlan
from engine.partition.instruction_copies import add_copy
from engine.partition.marks import Cut
from engine.partition.micro_batch import INDEX, MicroBatch
from engine.partition.row_gradients import accumulated

Outputs = Literal["last", "all", "sum"]
"""Treatment of the micro-batches' results: the last one's, all with a leading axis, or their sum."""


@dataclass(slots=True)
class StateSlots:
    """Indices in the loop's state; `rows` are the variables of replicas.

    A value is in one of the `holders` if all parts read it before the next micro-batch's value is written. Other values
    are in rings of `depths` slots.
    """

    outputs: Outputs = "last"
    rows: Collection[int] = ()
    gradients: dict[Instruction, tuple[int, ...]] = field(default_factory=dict)
    states: dict[int, int] = field(default_factory=dict)
    lasts: dict[Instruction, int] = field(default_factory=dict)
    given: dict[Instruction, int] = field(default_factory=dict)
    depths: dict[Instruction, int] = field(default_factory=dict)
    rings: dict[Instruction, int] = field(default_factory=dict)
    holders: dict[Instruction, int] = field(default_factory=dict)

    def changing(self, plan: PartPlan) -> list[int]:
        """Indices of the elements that a part reads or writes and some part changes."""
        waiting = self.holders | self.rings
        state_slots = [waiting[value] for value in (*plan.crossings, *plan.reads) if value in waiting]
        state_slots += [slot for mark in plan.marks for slot in self.gradients[mark]]
        state_slots += [self.states[number] for number in plan.states]
        state_slots += [self.lasts[value] for value in plan.last]
        return list(dict.fromkeys(state_slots))


def add_part(
    builder: Builder,
    iteration: MicroBatch,
    parts: Cut,
    plan: PartPlan,
    *,
    state_slots: StateSlots,
    elements: Mapping[int, Instruction],
    crossed: dict[Instruction, Instruction],
) -> dict[int, Instruction]:
    """Adds a part's instructions; returns the new values of the elements that it changes.

    `crossed` has the values from earlier parts of the same iteration; those that this part computes are added to it.
    """
    new = {p: elements[state_slots.given[p]] for p in plan.shared}
    new |= {p: iteration.feed(elements[state_slots.given[p]], p) for p in plan.feeds}
    for value in plan.reads:
        known_as = plan.stands_for.get(value, value)
        if value in crossed:
            new[known_as] = crossed[value]
        elif value in state_slots.holders:
            new[known_as] = elements[state_slots.holders[value]]
        else:
            slot = _slot(iteration, state_slots.depths[value], builder)
            new[known_as] = iteration.taken(elements[state_slots.rings[value]], slot)
    for parameter, number in plan.variables.items():
        state = elements[state_slots.states[number]]
        new[parameter] = iteration.row(state) if number in state_slots.rows else state
    for each in plan.copied:
        new[each] = add_copy(builder, each, [new[operand] for operand in each.operands])
    following: dict[int, Instruction] = {}
    for value in plan.crossings:
        made = new[plan.stands_for.get(value, value)]
        crossed[value] = made
        if value in state_slots.holders:
            following[state_slots.holders[value]] = made
        if value in state_slots.rings:
            state_slot, slot = state_slots.rings[value], _slot(iteration, state_slots.depths[value], builder)
            following[state_slot] = iteration.put(elements[state_slot], slot, made)
    for mark in plan.marks:
        slots = state_slots.gradients[mark]
        totals = tuple(elements[slot] for slot in slots)
        following |= zip(slots, accumulated(iteration, mark, totals, new[mark.operands[0]]), strict=True)
    for number in plan.states:
        state_slot, value = state_slots.states[number], new[parts.moving[number]]
        following[state_slot] = iteration.with_row(elements[state_slot], value) if number in state_slots.rows else value
    for value in plan.last:
        state_slot = state_slots.lasts[value]
        following[state_slot] = _kept(iteration, state_slots.outputs, elements[state_slot], new[value], builder)
    return following


def _slot(iteration: MicroBatch, depth: int, builder: Builder) -> Instruction:
    return builder.elementwise("remainder", iteration.index, builder.constant(depth, INDEX))


def _kept(iteration: MicroBatch, outputs: Outputs, old: Instruction, new: Instruction, builder: Builder) -> Instruction:
    if outputs == "all":
        return iteration.put(old, iteration.index, new)
    return builder.add(old, new) if outputs == "sum" else new
