"""Training and inference steps of several pipeline stages, with scopes and marks, as TensorFlow would trace them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from tests.partition.steps import mark

WIDTH = 6


@dataclass
class StagedStep:
    """A module and the roles of its parameters."""

    module: Module
    roles: list[str]
    once: set[int]
    metrics: set[int]
    random: set[int]
    constants: dict[int, np.ndarray]
    names: dict[int, str] = field(default_factory=dict)

    def of_role(self, role: str) -> list[Instruction]:
        return [p for p in self.module.entry.parameters if self.roles[p["parameter_number"]] == role]


@contextmanager
def scope(b: Builder, name: str) -> Iterator[None]:
    """Names everything that is added inside, as if traced in that scope."""
    before = len(b.instructions)
    yield
    for instruction in b.instructions[before:]:
        instruction.op_name = instruction.op_name or f"step/{name}/op"


class _Tracing:
    def __init__(self, batch: int, stages: int, width: int, tied: bool) -> None:
        self.b = Builder("step")
        self.roles: list[str] = []
        self.batch, self.stages, self.width = batch, stages, width
        self.x = self.parameter("feed", "f32", (batch, width))
        self.target = self.parameter("feed", "f32", (batch, width))
        self.weights = [self.parameter("variable", "f32", (width, width)) for _ in range(stages - tied)]
        self.weights += self.weights[:1] if tied else []
        self.moving = [self.parameter("variable", "f32", (width,)) for _ in range(stages)]
        self.seed, self.total = self.parameter("variable", "s32"), self.parameter("variable", "f32")
        self.iteration = self.parameter("variable", "s64")
        self.rate = self.parameter("constant", "f32")

    def parameter(self, role: str, element_type: str, dimensions: tuple[int, ...] = ()) -> Instruction:
        self.roles.append(role)
        return self.b.parameter(element_type, dimensions)

    def spread(self, vector: Instruction) -> Instruction:
        return self.b.broadcast(vector, (self.batch, self.width), (1,) if vector.array_shape.rank else ())

    def forward(self) -> tuple[Instruction, list[Instruction], list[tuple[Instruction, ...]], Instruction]:
        """Builds the output, new moving means, the values of each stage that gradients need, and the new seed."""
        b, shape = self.b, (self.batch, self.width)
        seed, value, moving, kept = self.seed, self.x, [], []
        for stage, weights in enumerate(self.weights):
            with scope(b, f"ipu_stage_{stage}{'_1' if stage else ''}/dense_{stage}"):
                mask = b.elementwise("remainder", b.add(seed, b.constant(stage, "s32")), b.constant(3, "s32"))
                scale = self.spread(b.add(b.convert(mask, "f32"), b.constant(0.5)))
                product = b.dot(value, weights)
                mean = b.divide(b.reduce(product, b.constant(0.0), (0,)), b.splat(self.batch, (self.width,)))
                moving.append(
                    b.add(
                        b.multiply(self.moving[stage], b.splat(0.75, (self.width,))),
                        b.multiply(mean, b.splat(0.25, (self.width,))),
                    )
                )
                active = b.elementwise("tanh", b.subtract(product, self.spread(mean)))
                new = b.multiply(active, scale)
                # Every stage changes the same state of random numbers.
                seed = b.add(seed, b.constant(5, "s32"))
            if 0 < stage < self.stages - 1:
                new = b.add(new, value)  # a residual in no scope
            kept.append((value, active, scale))
            value = new
        assert value.array_shape.dimensions == shape
        return value, moving, kept, seed

    def backward(self, error: Instruction, kept: list[tuple[Instruction, ...]]) -> list[Instruction]:
        """The gradients of the stages' weights."""
        b, gradients = self.b, []
        for stage in reversed(range(self.stages)):
            value, active, scale = kept[stage]
            passed = error
            with scope(b, f"gradient_tape/ipu_stage_{stage}/dense_{stage}"):
                slope = b.subtract(b.splat(1, active.array_shape.dimensions), b.multiply(active, active))
                error = b.multiply(b.multiply(error, scale), slope)
                gradients.append(b.dot(b.transpose(value, (1, 0)), error))
                error = b.dot(error, b.transpose(self.weights[stage], (1, 0)))
            if 0 < stage < self.stages - 1:
                error = b.add(error, passed)
        return gradients[::-1]


def staged_step(
    batch: int, stages: int, *, training: bool = True, tied: bool = False, width: int = WIDTH
) -> StagedStep:
    """A chain of dense layers with residuals, moving means, dropout from one seed, a metric and a count of updates.

    With `tied` the last stage has the first one's weights. Results: the loss, without training the output; variables.
    """
    t = _Tracing(batch, stages, width, tied)
    b = t.b
    value, moving, kept, seed = t.forward()
    error = b.subtract(value, t.target)
    loss = b.reduce(b.multiply(error, error), b.constant(0.0), (0, 1))
    total = b.add(t.total, loss)
    news, iteration = list(dict.fromkeys(t.weights)), t.iteration
    if training:
        gradients = t.backward(b.add(error, error), kept)
        if tied:
            gradients[0] = b.add(gradients[0], gradients.pop())
        marked = [mark(b, gradient, f"weights_{k}") for k, gradient in enumerate(gradients)]
        step = b.broadcast(t.rate, (width, width), ())
        news = [b.subtract(old, b.multiply(step, new)) for old, new in zip(news, marked, strict=True)]
        iteration = b.add(iteration, b.constant(1, "s64"))
    results = b.tuple(loss if training else value, *news, *moving, seed, total, iteration)
    variables = [k for k, role in enumerate(t.roles) if role == "variable"]
    module = b.module(results, {number: k + 1 for k, number in enumerate(variables)})
    once, metrics, random = ({each["parameter_number"]} for each in (t.iteration, t.total, t.seed))
    constants = {t.rate["parameter_number"]: np.float32(0.01)}
    return StagedStep(module, t.roles, once, metrics, random, constants)


def values_of(step: StagedStep, seed: int = 0) -> list[np.ndarray]:
    """Values for the variables."""
    rng = np.random.default_rng(seed)
    shapes = [p.array_shape for p in step.of_role("variable")]
    return [(rng.normal(size=s.dimensions) if s.dtype.kind == "f" else np.asarray(7)).astype(s.dtype) for s in shapes]
