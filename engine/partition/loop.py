"""The loop over the micro-batches of one update: each turn is the gradient part of a training step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.module import topological
from engine.partition.accumulation import Accumulation
from engine.partition.copies import Copies, with_own_names
from engine.partition.marks import Cut, accumulator_of
from engine.passes.loops.distribute import KEEPS_ITS_WORK

INDEX = "s32"


class MicroBatchLoop:
    """Adds the loop to the entry computation; afterwards its results are here.

    `reduced` has what stands for each mark, `last` what stands for values of the last micro-batch, `moved` the new
    value of each variable by its parameter's number, or of all its replicas' rows.
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
        body = _Body(shape, self.accumulation, counter)
        new = {p: body.feed(place, p) if self._is_feed(p) else body.element(place) for p, place in given.items()}
        for number, place in states.items():
            new[self.module.entry.parameters[number]] = body.row(place) if number in rows else body.element(place)
        copies = Copies(body.builder, new)
        following = {counter: body.next_index()}
        for mark, place in zip(parts.marks, gradients, strict=True):
            following[place] = body.accumulated(place, copies.of(mark.operands[0]))
        for number, place in states.items():
            value = copies.of(parts.moving[number])
            following[place] = body.with_row(place, value) if number in rows else value
        for value, place in zip(parts.last, lasts, strict=True):
            following[place] = copies.of(value)
        loop = self._while(body, shape, following)
        for mark, place in zip(parts.marks, gradients, strict=True):
            total = entry.get_tuple_element(loop, place)
            same = total.shape == mark.shape
            self.reduced[mark] = total if same else entry.convert(total, mark.array_shape.element_type)
        self.last = {v: entry.get_tuple_element(loop, place) for v, place in zip(parts.last, lasts, strict=True)}
        self.moved = {number: entry.get_tuple_element(loop, place) for number, place in states.items()}

    def _is_feed(self, parameter: Instruction) -> bool:
        return self.roles[parameter["parameter_number"]] == "feed"

    def _add(self, initial: Instruction) -> int:
        """A further element of the loop's state; returns its place."""
        self.initial.append(initial)
        return len(self.initial) - 1

    def _zeros(self, like: Instruction, element_type: str) -> Instruction:
        shape = like.array_shape
        zero = np.zeros((), Shape(element_type).dtype)
        return self.entry.splat(zero, shape.dimensions, element_type)

    def _while(self, body: _Body, shape: TupleShape, following: dict[int, Instruction]) -> Instruction:
        elements = [following.get(place) or body.element(place) for place in range(len(self.initial))]
        condition = Builder("more_micro_batches")
        counted = condition.get_tuple_element(condition.parameter_of(shape), body.counter)
        limit = condition.constant(self.accumulation.micro_batches, INDEX)
        called = (
            with_own_names(body.builder.build(body.builder.tuple(*elements))),
            condition.build(condition.compare(counted, limit, "LT")),
        )
        initial = self.entry.tuple(*self.initial)
        return self.entry.instruction("while", shape, (initial,), called, **{KEEPS_ITS_WORK: True})


class _Body:
    """The body of the loop, and where its turn finds its data."""

    def __init__(self, shape: TupleShape, accumulation: Accumulation, counter: int) -> None:
        self.builder = Builder("micro_batch")
        self.accumulation, self.counter = accumulation, counter
        self._state = self.builder.parameter_of(shape)
        self._elements: dict[int, Instruction] = {}
        self._index = self.element(counter)
        replicas = self.builder.constant(accumulation.replicas, INDEX)
        self._replica = self.builder.elementwise("remainder", self._index, replicas)
        self._step = self.builder.divide(self._index, replicas)

    def element(self, place: int) -> Instruction:
        """An element of the state."""
        if place not in self._elements:
            self._elements[place] = self.builder.get_tuple_element(self._state, place)
        return self._elements[place]

    def next_index(self) -> Instruction:
        """The number of the micro-batch after this one."""
        return self.builder.add(self._index, self.builder.constant(1, INDEX))

    def feed(self, place: int, parameter: Instruction) -> Instruction:
        """The rows of this micro-batch."""
        dimensions = parameter.array_shape.dimensions
        rows = dimensions[0] if dimensions else 1
        start = self.builder.multiply(self._index, self.builder.constant(rows, INDEX))
        sliced = self._slice(place, start, (rows, *dimensions[1:]))
        return sliced if dimensions else self.builder.reshape(sliced, ())

    def row(self, place: int) -> Instruction:
        """This replica's value of a variable."""
        dimensions = self.element(place).array_shape.dimensions[1:]
        return self.builder.reshape(self._slice(place, self._replica, (1, *dimensions)), dimensions)

    def with_row(self, place: int, value: Instruction) -> Instruction:
        """All replicas' values of a variable, this one's new."""
        rows = self.element(place)
        row = self.builder.reshape(value, (1, *value.array_shape.dimensions))
        starts = self._starts(self._replica, rows)
        return self.builder.instruction("dynamic-update-slice", rows.shape, (rows, row, *starts))

    def accumulated(self, place: int, gradient: Instruction) -> Instruction:
        """The gradients so far with this one's part: `reduction` over steps, the sum over replicas."""
        b, total = self.builder, self.element(place)
        element_type, dimensions = total.array_shape.element_type, total.array_shape.dimensions
        if gradient.array_shape.element_type != element_type:
            gradient = b.convert(gradient, element_type)
        if self.accumulation.reduction == "mean":
            gradient = b.divide(gradient, b.splat(self.accumulation.steps, dimensions, element_type))
        elif self.accumulation.reduction == "running_mean":
            count = b.convert(self.builder.add(self._step, b.constant(1, INDEX)), "f32")
            gradient = b.divide(gradient, self._spread(count, total))
            # All replicas' means are in one sum: it shrinks once for each round of replicas.
            one = b.constant(1.0)
            first = b.compare(self._replica, b.constant(0, INDEX), "EQ")
            kept = b.select(first, b.divide(b.subtract(count, one), count), one)
            total = b.multiply(total, self._spread(kept, total))
        return b.add(total, gradient)

    def _spread(self, scalar: Instruction, like: Instruction) -> Instruction:
        element_type = like.array_shape.element_type
        scalar = scalar if element_type == "f32" else self.builder.convert(scalar, element_type)
        return self.builder.broadcast(scalar, like.array_shape.dimensions, ())

    def _slice(self, place: int, start: Instruction, sizes: tuple[int, ...]) -> Instruction:
        array = self.element(place)
        shape = array.array_shape.with_dimensions(sizes)
        operands = (array, *self._starts(start, array))
        return self.builder.instruction("dynamic-slice", shape, operands, dynamic_slice_sizes=sizes)

    def _starts(self, first: Instruction, array: Instruction) -> list[Instruction]:
        zero = self.builder.constant(0, INDEX)
        return [first, *[zero] * (array.array_shape.rank - 1)]
