"""Random well-formed modules, full of patterns that passes look for: splats, unit dimensions, chains of moves."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from tests.passes.checking import SPECIAL

LARGEST = 240
TYPES = ["f32", "f32", "f32", "f16", "s32", "u8", "s64", "pred"]
FLOATS = ("f16", "f32")


class RandomModule:
    """Adds random instructions one after another, each on earlier ones."""

    def __init__(self, seed: int, size: int = 40, *, sums: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = Builder(f"random_{seed}")
        self.pool: list[Instruction] = []
        for _ in range(4):
            self.pool.append(self.b.parameter(self.one_of(TYPES), self.dimensions()))
        moves: list[Callable[[], Instruction | None]] = [
            self.unary, self.binary, self.binary, self.compare, self.select, self.convert, self.reshape,
            self.reshape, self.transpose, self.transpose, self.broadcast, self.broadcast, self.slice,
            self.pad, self.concatenate, self.reverse, self.source, self.through_tuple, self.extreme,
            self.dynamic_slice, self.called,
        ]  # fmt: skip
        if sums:
            moves += [self.sum, self.dot]
        while len(self.b.instructions) < size:
            made = self.one_of(moves)()
            if made is not None:
                self.pool.append(made)

    def module(self) -> Module:
        """The module; its results are the last instructions that nothing reads."""
        used = {operand for i in self.b.instructions for operand in i.operands}
        return self.b.module(self.b.tuple(*[i for i in self.pool if i not in used][-12:] or self.pool[-1:]))

    def one_of(self, choices: list[Any]) -> Any:
        return choices[self.rng.integers(len(choices))]

    def pick(self) -> Instruction:
        """An earlier instruction; late ones are more likely, so that chains grow."""
        last = len(self.pool) - 1
        return self.pool[last - min(last, int(self.rng.exponential(4)))]

    def dimensions(self) -> tuple[int, ...]:
        sizes = self.rng.choice([1, 2, 3, 4, 0], self.rng.integers(0, 4), p=[0.4, 0.2, 0.2, 0.16, 0.04])
        return tuple(int(n) for n in sizes)

    def number(self, element_type: str) -> object:
        if element_type == "pred":
            return bool(self.rng.integers(2))
        value = self.one_of(SPECIAL[:9])
        return value if element_type in FLOATS else int(self.rng.integers(0, 4))

    def matching(self, like: Instruction) -> Instruction:
        """An instruction of the same shape, or a splat of it."""
        same = [i for i in self.pool if i.shape == like.shape]
        if self.rng.random() < 0.6:
            return self.one_of(same)
        shape = like.array_shape
        return self.b.splat(self.number(shape.element_type), shape.dimensions, shape.element_type)

    def unary(self) -> Instruction:
        x = self.pick()
        kind = x.array_shape.element_type
        names = ["not"] if kind == "pred" else ["negate", "abs", "copy", "sign"]
        return self.b.elementwise(self.one_of([*names, *(["floor", "exponential"] if kind in FLOATS else [])]), x)

    def binary(self) -> Instruction:
        x = self.pick()
        pair = [x, self.matching(x)]
        if self.rng.random() < 0.5:
            pair.reverse()
        if x.array_shape.element_type == "pred":
            return self.b.elementwise(self.one_of(["and", "or", "xor"]), *pair)
        names = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
        if x.array_shape.element_type not in FLOATS:
            names += ["and", "or", "xor", "shift-left"]
        return self.b.elementwise(self.one_of(names), *pair)

    def compare(self) -> Instruction:
        x = self.pick()
        return self.b.compare(x, self.matching(x), self.one_of(["EQ", "NE", "LT", "GE"]))

    def select(self) -> Instruction:
        x = self.pick()
        dimensions = x.array_shape.dimensions
        predicates = [i for i in self.pool if i.shape == x.array_shape.with_type("pred")]
        predicates.append(self.b.splat(bool(self.rng.integers(2)), dimensions, "pred"))
        return self.b.select(self.one_of(predicates), x, self.matching(x))

    def convert(self) -> Instruction:
        return self.b.convert(self.pick(), self.one_of(TYPES))

    def reshape(self) -> Instruction:
        x = self.pick()
        sizes = [n for n in x.array_shape.dimensions if n != 1]
        if len(sizes) > 1 and self.rng.random() < 0.4:
            at = int(self.rng.integers(len(sizes) - 1))
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        if sizes and self.rng.random() < 0.3:
            at = int(self.rng.integers(len(sizes)))
            sizes[at : at + 1] = [2, sizes[at] // 2] if sizes[at] % 2 == 0 else [sizes[at]]
        for _ in range(self.rng.integers(0, 2 if len(sizes) < 5 else 1)):
            sizes.insert(int(self.rng.integers(len(sizes) + 1)), 1)
        return self.b.reshape(x, sizes)

    def transpose(self) -> Instruction:
        x = self.pick()
        return self.b.transpose(x, [int(d) for d in self.rng.permutation(x.array_shape.rank)])

    def broadcast(self) -> Instruction | None:
        x = self.pick()
        old = x.array_shape.dimensions
        new = [*old, *self.dimensions()[:2]]
        if prod(new) > LARGEST or len(new) > 5:
            return None
        order = [int(d) for d in self.rng.permutation(len(new))]
        return self.b.broadcast(x, [new[d] for d in order], [order.index(d) for d in range(len(old))])

    def slice(self) -> Instruction | None:
        x = self.pick()
        if x.array_shape.rank == 0:
            return None
        cuts = []
        for n in x.array_shape.dimensions:
            start, limit = sorted(int(v) for v in self.rng.integers(0, n + 1, 2))
            cuts.append((0, n) if self.rng.random() < 0.5 else (start, limit, int(self.rng.integers(1, 3))))
        return self.b.slice(x, *cuts)

    def dynamic_slice(self) -> Instruction | None:
        x = self.pick()
        if x.array_shape.rank == 0:
            return None
        sizes = tuple(int(self.rng.integers(0, n + 1)) for n in x.array_shape.dimensions)
        starts = [self.b.constant(int(self.rng.integers(-2, 5)), "s32") for _ in sizes]
        return self.b.inferred("dynamic-slice", (x, *starts), dynamic_slice_sizes=sizes)

    def pad(self) -> Instruction | None:
        x = self.pick()
        value = self.b.constant(self.number(x.array_shape.element_type), x.array_shape.element_type)
        edges = [tuple(int(v) for v in self.rng.choice([0, 0, 0, 1, -1], 2)) for _ in x.array_shape.dimensions]
        dimensions = [
            (low, high, int(self.rng.integers(0, 2)))
            for (low, high), n in zip(edges, x.array_shape.dimensions, strict=True)
        ]
        fits = all(n + low + high >= 0 for (low, high), n in zip(edges, x.array_shape.dimensions, strict=True))
        return self.b.pad(x, value, *dimensions) if fits and x.array_shape.elements < LARGEST // 8 else None

    def concatenate(self) -> Instruction | None:
        x = self.pick()
        if x.array_shape.rank == 0 or x.array_shape.elements > LARGEST // 2:
            return None
        pieces = [x] if self.rng.random() < 0.2 else [x, self.matching(x)]
        return self.b.concatenate(pieces, int(self.rng.integers(x.array_shape.rank)))

    def reverse(self) -> Instruction | None:
        x = self.pick()
        if x.array_shape.rank == 0:
            return None
        return self.b.reverse(x, [d for d in range(x.array_shape.rank) if self.rng.random() < 0.5])

    def source(self) -> Instruction | None:
        dimensions, kind = self.dimensions(), self.one_of(TYPES[:-1])
        if dimensions and self.rng.random() < 0.5:
            return self.b.iota(kind, dimensions, int(self.rng.integers(len(dimensions))))
        return self.b.constant([self.number(kind) for _ in range(int(self.rng.integers(1, 4)))], kind)

    def through_tuple(self) -> Instruction:
        packed = self.b.tuple(self.pick(), self.pick())
        return self.b.get_tuple_element(packed, int(self.rng.integers(2)))

    def called(self) -> Instruction:
        x = self.pick()
        inner = Builder("inner")
        p = inner.parameter_of(x.shape)
        body = inner.build(inner.transpose(inner.elementwise("copy", p), range(x.array_shape.rank)))
        return self.b.call(body, x)

    def extreme(self) -> Instruction | None:
        return self.reduced("maximum")

    def sum(self) -> Instruction | None:
        return self.reduced("add")

    def reduced(self, opcode: str) -> Instruction | None:
        x = self.pick()
        kind = x.array_shape.element_type
        if kind == "pred":
            return None
        initial = self.b.constant(self.one_of([0, 1]) if kind == "u8" else self.one_of([0, -1]), kind)
        dimensions = [d for d in range(x.array_shape.rank) if self.rng.random() < 0.4]
        return self.b.reduce(x, initial, dimensions, opcode)

    def dot(self) -> Instruction | None:
        x = self.pick()
        if x.array_shape.rank != 2 or x.array_shape.element_type not in FLOATS:
            return None
        return self.b.dot(x, self.b.transpose(self.matching(x), (1, 0)))
