"""The loop over the micro-batches of one update: each iteration is the gradient part of a training step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.module import topological
from engine.partition.accumulation import Accumulation
from engine.partition.instruction_copies import Copies
from engine.partition.loop_attributes import attributes_of_loop
from engine.partition.marks import Cut, accumulator_of
from engine.partition.micro_batch import INDEX, MicroBatch
from engine.partition.synchronised_copies import CopiesTogether
from engine.passes.loops.rebuilding import with_own_names


class MicroBatchLoop:
    """Adds the loop to the entry computation and holds its results.

    `reduced` has the replacement of each mark, `last` those of values of the last micro-batch, `moved` the new value of
    each variable by its parameter's number, or of all its replicas' rows.
    """

    def __init__(
        self, entry: Builder, module: Module, roles: Sequence[str], accumulation: Accumulation, parts: Cut
    ) -> None:
        self.entry, self.module, self.roles = entry, module, roles
        self.accumulation, self.parts = accumulation, parts
        self.initial: list[Instruction] = []
        self.following: list[Instruction] = []
        self.reduced: dict[Instruction, Instruction] = {}
        self.last: dict[Instruction, Instruction] = {}
        self.moved: dict[int, Instruction] = {}

    def run(self, parameters: Sequence[Instruction], rows: dict[int, Instruction]) -> None:
        """Adds the loop over micro-batches, given the entry's parameters and those of the replicas' rows."""
        entry, parts = self.entry, self.parts
        counter = self._add(entry.constant(0, INDEX))
        gradients = [self._add(self._zeros(mark, accumulator_of(mark))) for mark in parts.marks]
        states = {number: self._add(rows.get(number, parameters[number])) for number in parts.moving}
        lasts = [self._add(self._zeros(value, value.array_shape.element_type)) for value in parts.last]
        needed = set(topological([*(m.operands[0] for m in parts.marks), *parts.moving.values(), *parts.last]))
        given = {
            p: self._add(parameters[p["parameter_number"]])
            for p in self.module.entry.parameters
            if p in needed and p["parameter_number"] not in parts.moving
        }
        shape = TupleShape(tuple(i.shape for i in self.initial))
        body = _LoopBody(shape, self.accumulation, counter)
        of, last = self._copies(body, given, states, set(rows)), len(body.micro_batches) - 1
        following = {counter: body.next_iteration()}
        for mark, place in zip(parts.marks, gradients, strict=True):
            total = body.element(place)
            for k, micro_batch in enumerate(body.micro_batches):
                total = micro_batch.accumulated(mark, total, of(k, mark.operands[0]))
            following[place] = total
        for number, place in states.items():
            state = body.element(place)
            for k, micro_batch in enumerate(body.micro_batches):
                value = of(k, parts.moving[number])
                state = micro_batch.with_row(state, value) if number in rows else value
            following[place] = state
        for value, place in zip(parts.last, lasts, strict=True):
            following[place] = of(last, value)
        loop = self._while(body, shape, following)
        for mark, place in zip(parts.marks, gradients, strict=True):
            total = entry.get_tuple_element(loop, place)
            same = total.shape == mark.shape
            self.reduced[mark] = total if same else entry.convert(total, mark.array_shape.element_type)
        self.last = {v: entry.get_tuple_element(loop, place) for v, place in zip(parts.last, lasts, strict=True)}
        self.moved = {number: entry.get_tuple_element(loop, place) for number, place in states.items()}

    def _copies(
        self, body: _LoopBody, given: Mapping[Instruction, int], states: Mapping[int, int], rows: Collection[int]
    ) -> Callable[[int, Instruction], Instruction]:
        """A function that gives the copy of an instruction in the k-th of an iteration's micro-batches."""
        parameters, elements = self.module.entry.parameters, {p: body.element(place) for p, place in given.items()}
        stands = []
        for k, micro_batch in enumerate(body.micro_batches):
            new = {p: micro_batch.feed(array, p) if self._is_feed(p) else array for p, array in elements.items()}
            for number, place in states.items():
                state = body.element(place)
                if number in rows:
                    new[parameters[number]] = micro_batch.row(state)
                elif k == 0:
                    new[parameters[number]] = state
            stands.append(new)
        if len(stands) == 1:
            copies = Copies(body.builder, stands[0])
            return lambda k, instruction: copies.of(instruction)
        shared = {parameters[n]: value for n, value in self.parts.moving.items() if n not in rows}
        return CopiesTogether(body.builder, stands, shared).of

    def _is_feed(self, parameter: Instruction) -> bool:
        return self.roles[parameter["parameter_number"]] == "feed"

    def _add(self, initial: Instruction) -> int:
        """Adds an element to the loop's state; returns its index."""
        self.initial.append(initial)
        return len(self.initial) - 1

    def _zeros(self, like: Instruction, element_type: str) -> Instruction:
        shape = like.array_shape
        zero = np.zeros((), Shape(element_type).dtype)
        return self.entry.splat(zero, shape.dimensions, element_type)

    def _while(self, body: _LoopBody, shape: TupleShape, following: dict[int, Instruction]) -> Instruction:
        elements = [following.get(place) or body.element(place) for place in range(len(self.initial))]
        condition = Builder("more_micro_batches")
        counted = condition.get_tuple_element(condition.parameter_of(shape), body.counter)
        limit = condition.constant(self.accumulation.micro_batches // self.accumulation.together, INDEX)
        called = (
            with_own_names(body.builder.build(body.builder.tuple(*elements))),
            condition.build(condition.compare(counted, limit, "LT")),
        )
        initial = self.entry.tuple(*self.initial)
        return self.entry.instruction("while", shape, (initial,), called, **attributes_of_loop(self.module))


class _LoopBody:
    """The body of the loop, its state and its micro-batches."""

    def __init__(self, shape: TupleShape, accumulation: Accumulation, counter: int) -> None:
        self.builder = Builder("micro_batch")
        self.counter = counter
        self._state = self.builder.parameter_of(shape)
        self._elements: dict[int, Instruction] = {}
        self.iteration = self.element(counter)
        self.micro_batches = [MicroBatch(self.builder, accumulation, index) for index in self._indices(accumulation)]

    def element(self, place: int) -> Instruction:
        """An element of the state."""
        if place not in self._elements:
            self._elements[place] = self.builder.get_tuple_element(self._state, place)
        return self._elements[place]

    def next_iteration(self) -> Instruction:
        """The number of the iteration after this one."""
        return self.builder.add(self.iteration, self.builder.constant(1, INDEX))

    def _indices(self, accumulation: Accumulation) -> list[Instruction]:
        """The numbers of the micro-batches of this iteration."""
        together = accumulation.together
        if together == 1:
            return [self.iteration]
        first = self.builder.multiply(self.iteration, self.builder.constant(together, INDEX))
        return [first, *(self.builder.add(first, self.builder.constant(k, INDEX)) for k in range(1, together))]
