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

Outputs = Literal["last", "all", "sum"]
"""Treatment of the micro-batches' results: the last one's, all with a leading axis, or their sum."""


@dataclass(slots=True)
class Places:
    """Indices in the loop's state; `rows` are the variables of replicas.

    A value that all parts have read before the next micro-batch's is written is in one of the `holders`, others in
    rings of `depths` slots.
    """

    outputs: Outputs
    rows: Collection[int] = ()
    gradients: dict[Instruction, int] = field(default_factory=dict)
    states: dict[int, int] = field(default_factory=dict)
    lasts: dict[Instruction, int] = field(default_factory=dict)
    given: dict[Instruction, int] = field(default_factory=dict)
    depths: dict[Instruction, int] = field(default_factory=dict)
    rings: dict[Instruction, int] = field(default_factory=dict)
    holders: dict[Instruction, int] = field(default_factory=dict)

    def changing(self, plan: PartPlan) -> list[int]:
        """Indices of the elements that a part reads or writes and some part changes."""
        waiting = self.holders | self.rings
        places = [waiting[value] for value in (*plan.crossings, *plan.reads) if value in waiting]
        places += [self.gradients[mark] for mark in plan.marks]
        places += [self.states[number] for number in plan.states]
        places += [self.lasts[value] for value in plan.last]
        return list(dict.fromkeys(places))


def add_part(
    builder: Builder,
    iteration: MicroBatch,
    parts: Cut,
    plan: PartPlan,
    *,
    places: Places,
    elements: Mapping[int, Instruction],
    crossed: dict[Instruction, Instruction],
) -> dict[int, Instruction]:
    """Adds a part's instructions; returns the new values of the elements that it changes.

    `crossed` has the values that come from earlier parts of the same iteration, and gets those that this one computes.
    """
    new = {p: elements[places.given[p]] for p in plan.shared}
    new |= {p: iteration.feed(elements[places.given[p]], p) for p in plan.feeds}
    for value in plan.reads:
        known_as = plan.stands_for.get(value, value)
        if value in crossed:
            new[known_as] = crossed[value]
        elif value in places.holders:
            new[known_as] = elements[places.holders[value]]
        else:
            slot = _slot(iteration, places.depths[value], builder)
            new[known_as] = iteration.taken(elements[places.rings[value]], slot)
    for parameter, number in plan.variables.items():
        state = elements[places.states[number]]
        new[parameter] = iteration.row(state) if number in places.rows else state
    for each in plan.copied:
        new[each] = add_copy(builder, each, [new[operand] for operand in each.operands])
    following: dict[int, Instruction] = {}
    for value in plan.crossings:
        made = new[plan.stands_for.get(value, value)]
        crossed[value] = made
        if value in places.holders:
            following[places.holders[value]] = made
        if value in places.rings:
            place, slot = places.rings[value], _slot(iteration, places.depths[value], builder)
            following[place] = iteration.put(elements[place], slot, made)
    for mark in plan.marks:
        place = places.gradients[mark]
        following[place] = iteration.accumulated(mark, elements[place], new[mark.operands[0]])
    for number in plan.states:
        place, value = places.states[number], new[parts.moving[number]]
        following[place] = iteration.with_row(elements[place], value) if number in places.rows else value
    for value in plan.last:
        place = places.lasts[value]
        following[place] = _kept(iteration, places.outputs, elements[place], new[value], builder)
    return following


def _slot(iteration: MicroBatch, depth: int, builder: Builder) -> Instruction:
    return builder.elementwise("remainder", iteration.index, builder.constant(depth, INDEX))


def _kept(iteration: MicroBatch, outputs: Outputs, old: Instruction, new: Instruction, builder: Builder) -> Instruction:
    if outputs == "all":
        return iteration.put(old, iteration.index, new)
    return builder.add(old, new) if outputs == "sum" else new
