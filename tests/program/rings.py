"""Random loops over parts that only some iterations have, with rings in which values wait for later iterations."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction, Module, TupleShape
from engine.ir.builder import Builder
from engine.passes.conditionals import STAYS
from tests.program.loop_parts import below, loop, next_count, parts, product, scaled

INDEX = "s32"


class RingLoop:
    """A module made from a seed, which decides each part's reads and writes and the iterations in which it runs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.rows, self.width = int(self.rng.choice([5, 16, 33])), int(self.rng.choice([16, 24]))
        self.iterations = int(self.rng.integers(2, 9))
        self.depths = [int(depth) for depth in self.rng.integers(1, 5, int(self.rng.integers(1, 4)))]
        self.delays = [int(delay) for delay in self.rng.integers(0, 3, int(self.rng.integers(1, 5)))]

    def module(self) -> Module:
        """The loop's rings and total, from data and weights. Iterations without data read the nearest rows."""
        b = Builder("ring_loop")
        data = b.parameter("f32", (self.iterations * self.rows, self.width))
        weights = b.parameter("f32", (self.width, self.width))
        rings = [b.splat(0.5, (depth, self.rows, self.width)) for depth in self.depths]
        total = b.splat(0.0, (self.rows, self.width))
        state = [b.constant(0, INDEX), data, weights, total, *rings]
        return b.module(b.tuple(*loop(b, state, below(self.iterations), self.iteration)[3:]))

    def iteration(self, s: Builder, elements: list[Instruction]) -> list[Instruction]:
        """All parts, one after another."""
        for delay in self.delays:
            elements = self.branch(s, delay, elements)
        return [next_count(s, elements[0]), *elements[1:]]

    def branch(self, s: Builder, delay: int, elements: list[Instruction]) -> list[Instruction]:
        """Builds a part that runs from iteration `delay` on, perhaps not to the end."""
        count = elements[0]
        begun = s.compare(count, s.constant(delay, INDEX), "GE")
        ends = s.compare(count, s.constant(delay + int(self.rng.integers(1, self.iterations + 1)), INDEX), "LT")
        micro_batch = s.subtract(count, s.constant(delay, INDEX))
        argument = s.tuple(*elements, micro_batch)
        assert isinstance(argument.shape, TupleShape)
        run, skip = Builder(f"run_{delay}"), Builder("skip")
        given = parts(run, run.parameter_of(argument.shape))
        changed = run.tuple(*self.part(run, given[:-1], given[-1])[3:])
        kept = skip.tuple(*parts(skip, skip.parameter_of(argument.shape))[3:-1])
        operands = (s.elementwise("and", begun, ends), argument, argument)
        called = (run.build(changed), skip.build(kept))
        done = s.instruction("conditional", changed.shape, operands, called, **{STAYS: True})
        return [*elements[:3], *parts(s, done)]

    def part(self, s: Builder, elements: list[Instruction], micro_batch: Instruction) -> list[Instruction]:
        """Takes values from data and rings, and puts some into rings and adds some to the total, in any order."""
        count, data, weights, total, *rings = elements
        value = self.taken(s, data, s.multiply(micro_batch, s.constant(self.rows, INDEX)), self.rows)
        for _ in range(int(self.rng.integers(1, 5))):
            number = int(self.rng.integers(len(rings)))
            kind = self.rng.choice(["take", "put", "add"])
            if kind == "take":
                ring = s.reshape(
                    self.taken(s, rings[number], self.slot(s, micro_batch, number), 1), value.array_shape.dimensions
                )
                value = s.add(s.elementwise("tanh", product(s, value, weights)), scaled(s, ring, 0.5))
            elif kind == "put":
                value = s.elementwise("tanh", s.add(value, scaled(s, total, 0.25)))
                row = s.reshape(value, (1, *value.array_shape.dimensions))
                starts = (self.slot(s, micro_batch, number), s.constant(0, INDEX), s.constant(0, INDEX))
                ring = rings[number]
                rings[number] = s.instruction("dynamic-update-slice", ring.shape, (ring, row, *starts))
            else:
                total = s.add(total, s.multiply(value, value))
        return [count, data, weights, s.add(total, value), *rings]

    def slot(self, s: Builder, micro_batch: Instruction, number: int) -> Instruction:
        """A slot's number; a number out of the ring means the slot at its end."""
        moved = s.add(micro_batch, s.constant(int(self.rng.integers(0, 3)), INDEX))
        if self.rng.integers(4) == 0:
            return moved
        return s.elementwise("remainder", moved, s.constant(self.depths[number], INDEX))

    def taken(self, s: Builder, array: Instruction, start: Instruction, rows: int) -> Instruction:
        """Rows of an array along its first dimension."""
        rank = array.array_shape.rank
        sizes = (rows, *array.array_shape.dimensions[1:])
        operands = (array, start, *[s.constant(0, INDEX)] * (rank - 1))
        shape = array.array_shape.with_dimensions(sizes)
        return s.instruction("dynamic-slice", shape, operands, dynamic_slice_sizes=sizes)


def ring_loop(seed: int) -> Module:
    """The module of a seed."""
    return RingLoop(seed).module()
