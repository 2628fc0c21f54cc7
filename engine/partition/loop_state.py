"""A step around a loop over micro-batches: the elements of the loop's state, its results, and the update part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.attributes import HOLDS_ANYTHING, ROWS_OF_AN_ITERATION
from engine.ir.builder import Builder
from engine.ir.device_operations import OUTFEED, target_of
from engine.ir.module import topological
from engine.ir.work import most_rows
from engine.partition.accumulation import Accumulation
from engine.partition.collectives import unstacked
from engine.partition.crossings import PartPlan
from engine.partition.instruction_copies import add_copy, copied
from engine.partition.marks import Cut, accumulator_of
from engine.partition.micro_batch import INDEX, MicroBatch
from engine.partition.process_order import in_one_order
from engine.partition.processes import Processes
from engine.partition.replicas import Replicated, replicated
from engine.partition.row_gradients import is_of_rows, row_shapes, table_of
from engine.passes.loops.distribute import KEEPS_ITS_WORK
from engine.passes.loops.rebuilding import with_own_names

COUNTER = 0
"""The index of the element that counts iterations."""


Outputs = Literal["last", "all", "sum"]
"""Treatment of the micro-batches' results: the last one's, all with a leading axis, or their sum."""


@dataclass(slots=True)
class StateSlots:
    """Indices in the loop's state.

    A value is in one of the `holders` if all parts read it before the next micro-batch's value is written. Other values
    are in rings of `depths` slots.
    """

    outputs: Outputs = "last"
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


class Loop(ABC):
    """Builds a new entry computation, with a loop, and holds the loop's results.

    `reduced` maps each mark, and `last` each value of the last micro-batch, to its replacement. `moved` maps the number
    of a variable's parameter to the variable's new value, or to the new rows of all replicas.
    """

    def __init__(
        self,
        module: Module,
        roles: Sequence[str],
        accumulation: Accumulation,
        parts: Cut,
        rows: tuple[int, ...],
        processes: Processes | None = None,
    ) -> None:
        self.module, self.roles, self.accumulation, self.parts = module, roles, accumulation, parts
        self.rows, self.processes = rows, processes
        self.repeats_outputs = False
        """Whether outputs of the update part, too, have a leading axis of all micro-batches."""
        self.entry = Builder(module.entry.name)
        self.slots = StateSlots()
        self.initial: list[Instruction] = []
        self.reduced: dict[Instruction, Instruction] = {}
        self.last: dict[Instruction, Instruction] = {}
        self.moved: dict[int, Instruction] = {}

    @abstractmethod
    def run(self, parameters: Sequence[Instruction], rows: dict[int, Instruction]) -> None:
        """Adds the loop, given the entry's parameters and those of the replicas' rows."""

    def add_elements(
        self, parameters: Sequence[Instruction], rows: Mapping[int, Instruction], leading: tuple[int, ...] = ()
    ) -> None:
        """Adds the counter, which is first, and the elements of marks, of variables and of last values.

        Last values have these leading dimensions.
        """
        slots, parts = self.slots, self.parts
        self.add(self.entry.constant(0, INDEX))
        slots.gradients = {mark: self.add_gradient(mark) for mark in parts.marks}
        slots.states = {number: self.add(rows.get(number, parameters[number])) for number in parts.moving}
        slots.lasts = {value: self.add(self.zeros(value.array_shape, leading)) for value in parts.last}

    def add(self, initial: Instruction) -> int:
        """Adds an element to the loop's state; returns its index."""
        self.initial.append(initial)
        return len(self.initial) - 1

    def zeros(self, shape: Shape, leading: tuple[int, ...] = ()) -> Instruction:
        """An element's initial value of zeros."""
        return self.entry.splat(np.zeros((), shape.dtype), (*leading, *shape.dimensions), shape.element_type)

    def add_gradient(self, mark: Instruction) -> tuple[int, ...]:
        """Adds the elements of a marked gradient; returns their indices."""
        if is_of_rows(mark, self.accumulation):
            return tuple(self.add(self.anything(s)) for s in row_shapes(mark, self.accumulation.micro_batches))
        return (self.add(self.zeros(mark.array_shape.with_type(accumulator_of(mark)))),)

    def anything(self, shape: Shape) -> Instruction:
        """An initial value of any contents, for an element that is written before it is read."""
        zero = self.entry.constant(0, shape.element_type)
        return self.entry.instruction("broadcast", shape, (zero,), (), dimensions=(), **{HOLDS_ANYTHING: True})

    @property
    def shape(self) -> TupleShape:
        """The shape of the state."""
        return TupleShape(tuple(i.shape for i in self.initial))

    def following(
        self,
        micro_batches: Sequence[MicroBatch],
        elements: Mapping[int, Instruction],
        results: Cut | PartPlan,
        of: Callable[[int, Instruction], Instruction],
    ) -> dict[int, Instruction]:
        """The elements after an iteration that computes the marks, states and last values of `results`.

        `of` gives the copy of an instruction in the k-th micro-batch.
        """
        found: dict[int, Instruction] = {}
        for mark in results.marks:
            slots = self.slots.gradients[mark]
            totals = tuple(elements[slot] for slot in slots)
            for k, each in enumerate(micro_batches):
                totals = each.accumulated(mark, totals, of(k, mark.operands[0]))
            found |= zip(slots, totals, strict=True)
        for number in results.moving if isinstance(results, Cut) else results.states:
            slot = self.slots.states[number]
            state = elements[slot]
            for k, each in enumerate(micro_batches):
                value = of(k, self.parts.moving[number])
                state = each.put(state, each.replica, value) if number in self.rows else value
            found[slot] = state
        for value in results.last:
            slot, newest = self.slots.lasts[value], micro_batches[-1]
            found[slot] = self._kept(newest, elements[slot], of(len(micro_batches) - 1, value))
        return found

    def _kept(self, micro_batch: MicroBatch, old: Instruction, new: Instruction) -> Instruction:
        """The results of micro-batches so far, with those of one more."""
        if self.slots.outputs == "all":
            return micro_batch.put(old, micro_batch.index, new)
        return micro_batch.b.add(old, new) if self.slots.outputs == "sum" else new

    def add_while(self, body: Builder, elements: Mapping[int, Instruction], iterations: int) -> Instruction:
        """Adds the loop whose body computes these elements of the next state."""
        following = with_own_names(body.build(body.tuple(*(elements[slot] for slot in range(len(self.initial))))))
        condition = Builder(f"more_{body.name}s")
        counted = condition.get_tuple_element(condition.parameter_of(self.shape), COUNTER)
        test = condition.build(condition.compare(counted, condition.constant(iterations, INDEX), "LT"))
        rows = most_rows(self.module.entry.instructions)
        attributes = {KEEPS_ITS_WORK: True} | ({} if rows is None else {ROWS_OF_AN_ITERATION: rows})
        initial = self.entry.tuple(*self.initial)
        return self.entry.instruction("while", self.shape, (initial,), (following, test), **attributes)

    def take_results(self, loop: Instruction) -> None:
        """Records the loop's results."""
        entry = self.entry
        for mark, slots in self.slots.gradients.items():
            totals = tuple(entry.get_tuple_element(loop, slot) for slot in slots)
            total = totals[0] if len(totals) == 1 else table_of(entry, mark, totals)
            same = total.shape == mark.shape
            self.reduced[mark] = total if same else entry.convert(total, mark.array_shape.element_type)
        self.last = {value: entry.get_tuple_element(loop, slot) for value, slot in self.slots.lasts.items()}
        self.moved = {number: entry.get_tuple_element(loop, slot) for number, slot in self.slots.states.items()}

    def made(self) -> Replicated:
        """The step: parameters, the loop, the update part."""
        old = self.module.entry.parameters
        parameters = [self.entry.parameter_of(self._parameter_shape(p)) for p in old]
        for new, parameter in zip(parameters, old, strict=True):
            new.name, new.op_name = parameter.name, parameter.op_name
        own = {number: old[number].array_shape for number in self.rows}
        shapes = {n: s.with_dimensions((self.accumulation.replicas, *s.dimensions)) for n, s in own.items()}
        rows = {number: self.entry.parameter_of(shape) for number, shape in shapes.items()}
        self.run(parameters, rows)
        known = dict(zip(old, parameters, strict=True))
        marks = self.reduced if self.processes is None else self.processes.reduced(self.entry, self.reduced)
        stands = {**known, **marks, **self.last}
        copy = partial(copied, self.entry, stands)
        if self.accumulation.replicas > 1:
            self._enqueue_for_replicas(stands)
        aliases, results = self.module.aliases, {}
        for number, state in self.moved.items():
            # The host reads replica 0's row.
            results[aliases[number]] = unstacked(self.entry, state, 0) if number in rows else state
        for number, value in self.parts.updates.items():
            results[aliases[number]] = copy(value)
        for index, value in self.parts.outputs.items():
            results[index] = copy(value)
            if self.repeats_outputs and value not in self.last:
                dimensions = value.array_shape.dimensions
                leading, kept = (self.accumulation.micro_batches, *dimensions), range(1, 1 + len(dimensions))
                results[index] = self.entry.broadcast(results[index], leading, tuple(kept))
        ordered = [results[index] for index in range(len(results))]
        made = replicated(self.entry, self.module, self.roles, ordered, {n: self.moved[n] for n in rows})
        return made if self.processes is None else replace(made, module=in_one_order(made.module))

    def _enqueue_for_replicas(self, stands: dict[Instruction, Instruction]) -> None:
        """Adds each outfeed that updates depend on once for each replica: each enqueues, as on a chip."""
        for outfeed in topological(self.parts.updates.values(), lambda i: i not in stands):
            if target_of(outfeed) != OUTFEED or outfeed in stands:
                continue
            *leaves, token = [copied(self.entry, stands, operand) for operand in outfeed.operands]
            for _ in range(self.accumulation.replicas):
                call = add_copy(self.entry, outfeed, [*leaves, token])
                token = call if isinstance(call.shape, Shape) else self.entry.get_tuple_element(call, 0)
            stands[outfeed] = call

    def _parameter_shape(self, parameter: Instruction) -> Shape:
        shape = parameter.array_shape
        if self.roles[parameter["parameter_number"]] != "feed":
            return shape
        first, *others = shape.dimensions or (1,)
        return shape.with_dimensions((first * self.accumulation.micro_batches, *others))
