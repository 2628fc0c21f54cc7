"""The loop over a pipeline's schedule: an iteration is one period, in which each part with a micro-batch runs once.

In the ramps at the beginning and at the end some parts have no micro-batch: so each part is a branch. Values that cross
to later parts wait in ring buffers for as many iterations as the schedule requires. Where a micro-batch goes through
all parts in one iteration there are neither branches nor rings. Iterations alternate between replicas, so each keeps to
the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.frozen import frozen
from engine.ir import Instruction, TupleShape
from engine.ir.builder import Builder
from engine.partition.crossings import PartPlan
from engine.partition.instruction_copies import add_copy
from engine.partition.loop_state import COUNTER, Loop, Outputs
from engine.partition.micro_batch import INDEX, MicroBatch
from engine.partition.schedule import Part, Schedule
from engine.passes.conditionals import STAYS
from engine.passes.loops.rebuilding import with_own_names

SMALL_BYTES = 1 << 16
"""Bytes of an array below which copying or keeping it costs less than waiting for other workers."""


@frozen
class Item:
    """A part as the loop runs it, `delay` iterations after a micro-batch's start, counted over all replicas."""

    part: Part
    plan: PartPlan
    delay: int


def waiting(items: Sequence[Item]) -> dict[Instruction, int]:
    """The largest number of micro-batches for which each crossing value is kept until all parts have read it.

    A slot may be written later in the iteration that reads it. Small values have one slot more, which costs
    less than to synchronise workers.
    """
    order = {item: number for number, item in enumerate(items)}
    writers = {value: item for item in items for value in item.plan.crossings}
    waits: dict[Instruction, int] = {}
    for item in items:
        for value in item.plan.reads:
            writer = writers[value]
            apart = order[writer] < order[item] or value.array_shape.bytes < SMALL_BYTES
            waits[value] = max(waits.get(value, 0), item.delay - writer.delay + apart)
    return waits


class PipelineLoop(Loop):
    """The loop whose iteration is a period of a schedule."""

    def __init__(
        self,
        *arguments: Any,
        plans: Mapping[Part, PartPlan],
        schedule: Schedule,
        outputs: Outputs = "last",
    ) -> None:
        super().__init__(*arguments)
        # Among parts that share a slot, readers of a value come before its writer: no extra copy is kept for them.
        ordered = sorted(plans, key=lambda part: (part.start % schedule.period, -schedule.position(part)))
        periods = {part: part.start // schedule.period * self.accumulation.replicas for part in ordered}
        self.items = [Item(part, plans[part], delay) for part, delay in periods.items()]
        self.total = self.accumulation.micro_batches
        self.repeats_outputs = outputs == "all" and self.processes is not None
        self.iterations = self.total + max(item.delay for item in self.items)
        self.slots.outputs = outputs

    def run(self, parameters: Sequence[Instruction], rows: dict[int, Instruction]) -> None:
        """Adds the loop, given the entry's parameters and those of the replicas' rows."""
        self.add_elements(parameters, rows, (self.total,) if self.slots.outputs == "all" else ())
        given = {p for item in self.items for p in (*item.plan.feeds, *item.plan.shared)}
        for parameter, new in zip(self.module.entry.parameters, parameters, strict=True):
            if parameter in given:
                self.slots.given[parameter] = self.add(new)
        if self.iterations > self.total:
            self._add_crossings()
        self.take_results(self._while())

    def _add_crossings(self) -> None:
        """Adds a ring for each value, or one element if all readers read it before the next value is written."""
        state_slots, waits = self.slots, waiting(self.items)
        state_slots.depths = {value: depth for value, depth in waits.items() if depth > 1}
        for value in waits:
            if value not in state_slots.depths:
                state_slots.holders[value] = self.add(self.anything(value.array_shape))
        for value, depth in state_slots.depths.items():
            shape = value.array_shape
            state_slots.rings[value] = self.add(self.anything(shape.with_dimensions((depth, *shape.dimensions))))

    def _while(self) -> Instruction:
        body = Builder("pipeline_iteration")
        state = body.parameter_of(self.shape)
        elements = dict(enumerate(body.elements(state)))
        index = elements[COUNTER]
        if self.iterations == self.total:
            iteration, before = MicroBatch(body, self.accumulation, index), dict(elements)
            crossed: dict[Instruction, Instruction] = {}
            for item in self.items:
                elements |= self._part(iteration, item.plan, before, crossed)
        else:
            for item in self.items:
                self._branch(body, item, index, elements)
        elements[COUNTER] = body.add(index, body.constant(1, INDEX))
        return self.add_while(body, elements, self.iterations)

    def _branch(self, body: Builder, item: Item, index: Instruction, elements: dict[int, Instruction]) -> None:
        """Runs a part if it has a micro-batch in this iteration; afterwards `elements` has the new values."""
        changing = self.slots.changing(item.plan)
        constant = [self.slots.given[p] for p in (*item.plan.feeds, *item.plan.shared)]
        micro_batch = body.subtract(index, body.constant(item.delay, INDEX)) if item.delay else index
        argument = body.tuple(*(elements[state_slot] for state_slot in (*changing, *constant)), micro_batch)
        name = f"{item.part.kind}_{item.part.stage}"
        skip = Builder(f"no_{name}")
        old = skip.parameter_of(argument.shape)
        kept = skip.build(skip.tuple(*(skip.get_tuple_element(old, k) for k in range(len(changing)))))
        run = Builder(name)
        taken = run.parameter_of(argument.shape)
        inside = {state_slot: run.get_tuple_element(taken, k) for k, state_slot in enumerate((*changing, *constant))}
        iteration = MicroBatch(run, self.accumulation, run.get_tuple_element(taken, len(inside)))
        inside |= self._part(iteration, item.plan, dict(inside), {})
        new = with_own_names(run.build(run.tuple(*(inside[state_slot] for state_slot in changing))))
        shape = TupleShape(tuple(self.initial[state_slot].shape for state_slot in changing))
        operands = (self._has_one(body, item, index), argument, argument)
        done = body.instruction("conditional", shape, operands, (new, kept), **{STAYS: True})
        for k, state_slot in enumerate(changing):
            elements[state_slot] = body.get_tuple_element(done, k)

    def _part(
        self,
        iteration: MicroBatch,
        plan: PartPlan,
        elements: Mapping[int, Instruction],
        crossed: dict[Instruction, Instruction],
    ) -> dict[int, Instruction]:
        """Adds a part's instructions; returns the new values of the elements that it changes.

        `crossed` has the values from earlier parts of the same iteration; those that this part computes are added.
        """
        slots = self.slots
        new = {p: elements[slots.given[p]] for p in plan.shared}
        new |= {p: iteration.feed(elements[slots.given[p]], p) for p in plan.feeds}
        for value in plan.reads:
            known_as = plan.stands_for.get(value, value)
            if value in crossed:
                new[known_as] = crossed[value]
            elif value in slots.holders:
                new[known_as] = elements[slots.holders[value]]
            else:
                new[known_as] = iteration.taken(elements[slots.rings[value]], self._slot(iteration, value))
        for parameter, number in plan.variables.items():
            state = elements[slots.states[number]]
            new[parameter] = iteration.taken(state, iteration.replica) if number in self.rows else state
        for each in plan.copied:
            new[each] = add_copy(iteration.b, each, [new[operand] for operand in each.operands])
        following: dict[int, Instruction] = {}
        for value in plan.crossings:
            made = crossed[value] = new[plan.stands_for.get(value, value)]
            if value in slots.holders:
                following[slots.holders[value]] = made
            if value in slots.rings:
                ring = slots.rings[value]
                following[ring] = iteration.put(elements[ring], self._slot(iteration, value), made)
        return following | self.following([iteration], elements, plan, lambda _, value: new[value])

    def _slot(self, iteration: MicroBatch, value: Instruction) -> Instruction:
        """The slot of a micro-batch in the ring of a value."""
        depth = iteration.b.constant(self.slots.depths[value], INDEX)
        return iteration.b.elementwise("remainder", iteration.index, depth)

    def _has_one(self, body: Builder, item: Item, index: Instruction) -> Instruction:
        """Whether delay <= iteration < delay + micro-batches."""
        end = self.total + item.delay
        before_end = body.compare(index, body.constant(end, INDEX), "LT")
        if not item.delay:
            return before_end
        begun = body.compare(index, body.constant(item.delay, INDEX), "GE")
        return begun if end == self.iterations else body.elementwise("and", begun, before_end)
