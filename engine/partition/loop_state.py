"""A step around a loop over micro-batches: the elements of the loop's state, its results, and the update part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.attributes import HOLDS_ANYTHING, ROWS_OF_AN_ITERATION
from engine.ir.builder import Builder
from engine.ir.device_operations import OUTFEED, target_of
from engine.ir.module import topological
from engine.ir.work import most_rows
from engine.partition.accumulation import Accumulation
from engine.partition.collectives import unstacked
from engine.partition.instruction_copies import InstructionCopies, add_copy
from engine.partition.marks import Cut, accumulator_of
from engine.partition.micro_batch import INDEX
from engine.partition.pipeline_part import StateSlots
from engine.partition.process_order import in_one_order
from engine.partition.processes import Processes
from engine.partition.replicas import Kind, Replicated, replicated
from engine.partition.row_gradients import is_of_rows, row_shapes, table_of
from engine.passes.loops.distribute import KEEPS_ITS_WORK
from engine.passes.loops.rebuilding import with_own_names

COUNTER = 0
"""The index of the element that counts iterations."""


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
        kinds: dict[int, Kind],
        processes: Processes | None = None,
    ) -> None:
        self.module, self.roles, self.accumulation, self.parts = module, roles, accumulation, parts
        self.processes = processes
        self.rows = tuple(number for number, kind in kinds.items() if kind == "rows")
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
        slots.rows = set(rows)
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
        rows = {number: self.entry.parameter_of(self._rows_shape(number)) for number in self.rows}
        self.run(parameters, rows)
        known = dict(zip(old, parameters, strict=True))
        marks = self.reduced if self.processes is None else self.processes.reduced(self.entry, self.reduced)
        copies = InstructionCopies(self.entry, {**known, **marks, **self.last})
        if self.accumulation.replicas > 1:
            self._enqueue_for_replicas(copies)
        aliases, results = self.module.aliases, {}
        for number, state in self.moved.items():
            # The host reads replica 0's row.
            results[aliases[number]] = unstacked(self.entry, state, 0) if number in rows else state
        for number, value in self.parts.updates.items():
            results[aliases[number]] = copies.of(value)
        for index, value in self.parts.outputs.items():
            results[index] = copies.of(value)
            if self.repeats_outputs and value not in self.last:
                dimensions = value.array_shape.dimensions
                leading, kept = (self.accumulation.micro_batches, *dimensions), range(1, 1 + len(dimensions))
                results[index] = self.entry.broadcast(results[index], leading, tuple(kept))
        ordered = [results[index] for index in range(len(results))]
        made = replicated(self.entry, self.module, self.roles, ordered, {n: self.moved[n] for n in rows})
        return made if self.processes is None else replace(made, module=in_one_order(made.module))

    def _enqueue_for_replicas(self, copies: InstructionCopies) -> None:
        """Adds each outfeed that updates depend on once for each replica: each enqueues, as on a chip."""
        for outfeed in topological(self.parts.updates.values(), lambda i: i not in copies.known()):
            if target_of(outfeed) != OUTFEED or outfeed in copies.known():
                continue
            *leaves, token = [copies.of(operand) for operand in outfeed.operands]
            for _ in range(self.accumulation.replicas):
                call = add_copy(self.entry, outfeed, [*leaves, token])
                token = call if isinstance(call.shape, Shape) else self.entry.get_tuple_element(call, 0)
            copies.stand_for(outfeed, call)

    def _parameter_shape(self, parameter: Instruction) -> Shape:
        shape = parameter.array_shape
        if self.roles[parameter["parameter_number"]] != "feed":
            return shape
        first, *others = shape.dimensions or (1,)
        return shape.with_dimensions((first * self.accumulation.micro_batches, *others))

    def _rows_shape(self, number: int) -> Shape:
        shape = self.module.entry.parameters[number].array_shape
        return shape.with_dimensions((self.accumulation.replicas, *shape.dimensions))
