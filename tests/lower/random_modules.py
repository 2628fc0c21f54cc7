"""Random modules over a few shapes, made to be fused: elementwise chains, broadcasts, transposes, reductions, dots."""

from __future__ import annotations

import numpy as np

from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.ir.builder import Builder

UNARY = ("negate", "abs", "tanh", "logistic", "copy", "cosine")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
SHAPES = ((6, 35), (35, 6), (6,), (35,), (), (6, 1), (1, 35))
LARGE = ((96, 150), (150, 96), (96,), (150,), (), (96, 1), (1, 150))


class Maker:
    """Adds random instructions; every value stays small, so that fast and slow results can be compared."""

    def __init__(self, seed: int, shapes: tuple[tuple[int, ...], ...]) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = Builder()
        self.shapes = shapes
        self.pool = [self.builder.parameter("f32", s) for s in shapes]
        self.parameters = len(self.pool)

    def pick(self, shape: tuple[int, ...] | None = None) -> Instruction:
        found = [i for i in self.pool if shape is None or i.array_shape.dimensions == shape]
        late = len(found) - 1 - min(len(found) - 1, int(self.rng.exponential(3)))
        return found[late]

    def step(self) -> Instruction:
        x = self.pick()
        dimensions = x.array_shape.dimensions
        choice = int(self.rng.integers(10))
        if choice < 3:
            return self.builder.elementwise(str(self.rng.choice(UNARY)), x)
        if choice < 6:
            pair = [x, self.pick(dimensions)]
            return self.bounded(self.builder.elementwise(str(self.rng.choice(BINARY)), *pair))
        if choice == 6:
            return self.selected(x)
        if choice == 7:
            return self.moved(x)
        if choice == 8:
            return self.reduced(x)
        return self.product(x)

    def bounded(self, x: Instruction) -> Instruction:
        if self.rng.random() < 0.5:
            return x
        return self.builder.elementwise("tanh", x)

    def selected(self, x: Instruction) -> Instruction:
        dimensions = x.array_shape.dimensions
        zero = self.builder.splat(0.0, dimensions)
        positive = self.builder.compare(x, zero, "GT")
        return self.builder.select(positive, x, self.pick(dimensions))

    def moved(self, x: Instruction) -> Instruction:
        """Moves a value to another of the shapes: by a transpose, a broadcast or a reshape of unit dimensions."""
        dimensions, rows, columns = x.array_shape.dimensions, *self.shapes[0]
        if len(dimensions) == 2 and 1 not in dimensions:
            return self.builder.transpose(x, (1, 0))
        if not dimensions:
            return self.builder.broadcast(x, self.shapes[int(self.rng.integers(4))], ())
        flat = (rows if rows in dimensions else columns,)
        if self.rng.random() < 0.3:
            return self.builder.reshape(x, flat)
        row = flat[0] == rows
        target = self.shapes[0] if self.rng.random() < 0.5 else self.shapes[1]
        place = target.index(rows if row else columns)
        flattened = x if len(dimensions) == 1 else self.builder.reshape(x, flat)
        return self.builder.broadcast(flattened, target, (place,))

    def reduced(self, x: Instruction) -> Instruction:
        dimensions = x.array_shape.dimensions
        if not dimensions:
            return self.builder.elementwise("negate", x)
        chosen = tuple(d for d in range(len(dimensions)) if self.rng.random() < 0.6)
        opcode = str(self.rng.choice(["add", "maximum", "minimum"]))
        start = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf}[opcode]
        total = self.builder.reduce(x, self.builder.constant(start), chosen, opcode)
        if total.array_shape.dimensions not in self.shapes:
            total = self.builder.reduce(total, self.builder.constant(0.0), range(total.array_shape.rank))
        return self.builder.elementwise("tanh", total)

    def product(self, x: Instruction) -> Instruction:
        dimensions = x.array_shape.dimensions
        if dimensions != self.shapes[0]:
            return self.builder.elementwise("exponential", self.builder.elementwise("tanh", x))
        square = self.builder.dot(x, self.pick(self.shapes[1]))
        row = self.builder.slice(square, (0, square.array_shape.dimensions[0]), (0, 1))
        numbers = DotDimensionNumbers((1,), (0,))
        return self.builder.elementwise(
            "tanh", self.builder.dot(square, self.pick(dimensions), numbers) if self.rng.random() < 0.5 else row
        )

    def module(self, steps: int, variables: int = 0) -> Module:
        """A module whose results include the last value of each shape; the first `variables` parameters are updated."""
        for _ in range(steps):
            made = self.step()
            if made.array_shape.dimensions in self.shapes:
                self.pool.append(made)
        results = [self.pick(s) for s in self.shapes]
        results += [self.pick() for _ in range(2)]
        aliases = {number: number for number in range(variables)}
        return self.builder.module(self.builder.tuple(*results), aliases)
