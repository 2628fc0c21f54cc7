"""Programs whose memory Graphcore published, built as far as their tests are known, and the estimates for them.

`python -m tests.profile.published_memory` prints the table of docs/chip_memory.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.compile import build_program
from engine.ir import DotDimensionNumbers, Instruction
from engine.ir.builder import Builder
from engine.profile import Assumptions, Estimate, estimate
from engine.program.program import Program
from engine.target import target
from tests.profile.programs import named

INPUTS = 50_176
LAYERS = ((INPUTS, 32), (32, 64), (64, 64))
BLOCKS = ((64, 1), (64, 1), (128, 2), (128, 1), (128, 1))
"""Channels and stride of the residual blocks: with them a copy of all weights is 2.2 MB. Published runs with momentum
take 2.1 MB more than those without."""


@dataclass(frozen=True, slots=True)
class Point:
    """A published number of bytes, over all tiles or on the fullest one, and the estimate."""

    name: str
    published: int
    estimate: int

    @property
    def error(self) -> float:
        return self.estimate / self.published - 1


def two_products() -> Program:
    """(a b) c in fp16, each [1024, 1024]."""
    b = Builder("two_products")
    x, *weights = (b.parameter("f16", (1024, 1024)) for _ in range(3))
    for weight in weights:
        x = b.dot(x, weight)
    return build_program(b.module(b.tuple(x)), ["feed", "variable", "variable"], {})


def perceptron(batch: int, trained: bool) -> Program:
    """50,176 -> 32 -> 64 -> 64 in fp16 with relu between; `trained` by gradient descent on the squared error."""
    b = Builder("perceptron")
    kept: list[Instruction] = [b.parameter("f16", (batch, INPUTS))]
    weights = [b.parameter("f16", shape) for shape in LAYERS]
    for number, weight in enumerate(weights):
        y = named(b.dot(kept[-1], weight), f"model/dense_{number}/MatMul")
        if number < len(weights) - 1:
            zero = b.splat(0.0, y.array_shape.dimensions, "f16")
            y = named(b.elementwise("maximum", y, zero), f"model/dense_{number}/Relu")
        kept.append(y)
    roles = ["feed", *["variable"] * len(weights)]
    if not trained:
        return build_program(b.module(b.tuple(kept[-1])), roles, {})
    gradient = b.subtract(kept[-1], b.parameter("f16", (batch, LAYERS[-1][1])))
    updated = []
    for number in reversed(range(len(weights))):
        layer, shape = f"gradient_tape/model/dense_{number}/MatMul", LAYERS[number]
        slope = named(b.dot(kept[number], gradient, DotDimensionNumbers((0,), (0,))), f"{layer}/MatMul_1")
        if number:
            back = b.dot(gradient, weights[number], DotDimensionNumbers((1,), (1,)))
            zero = b.splat(0.0, kept[number].array_shape.dimensions, "f16")
            passes = b.compare(kept[number], zero, "GT")
            gradient = named(b.elementwise("select", passes, named(back, layer), zero), f"{layer}/ReluGrad")
        step = b.multiply(slope, b.splat(0.01, shape, "f16"))
        updated.append(named(b.subtract(weights[number], step), f"sgd/AssignSubVariableOp_{number}"))
    loss = b.reduce(b.multiply(kept[-1], kept[-1]), b.constant(0.0, "f16"), (0, 1))
    aliases = {k: k for k in range(1, 1 + len(weights))}
    return build_program(b.module(b.tuple(loss, *reversed(updated)), aliases=aliases), [*roles, "feed"], {})


def residual_network() -> Any:
    """A Keras model in fp16 of [224, 224, 4], much like a ResNet, with BLOCKS."""
    from keras import Input, Model, layers

    def convolution(x: Any, channels: int, size: int, stride: int) -> Any:
        return layers.Conv2D(channels, size, strides=stride, padding="same", use_bias=False)(x)

    inputs = Input((224, 224, 4))
    x = layers.MaxPooling2D(3, 2, padding="same")(layers.ReLU()(convolution(inputs, 64, 7, 2)))
    for channels, stride in BLOCKS:
        short = x if stride == 1 else convolution(x, channels, 1, stride)
        inner = layers.ReLU()(convolution(x, channels, 3, stride))
        x = layers.ReLU()(layers.Add()([convolution(inner, channels, 3, 1), short]))
    return Model(inputs, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))


def residual_program(momentum: float | None = None, trained: bool = True, accumulated: int = 1) -> Program:
    """Compiles the network in an IPUStrategy for a micro-batch of 1; runs one update, or a prediction."""
    import keras

    from ipu.ipu_strategy import IPUStrategy

    images, labels = np.zeros((accumulated, 224, 224, 4), np.float16), np.zeros(accumulated, np.int32)
    keras.config.set_dtype_policy("float16")
    try:
        with IPUStrategy().scope():
            model = residual_network()
            if not trained:
                model.predict(images, batch_size=1, verbose=0)
                return model.predict_function.latest_program().engine_program
            optimizer = keras.optimizers.SGD(0.01, **({"momentum": momentum} if momentum else {}))
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss, steps_per_execution=accumulated)
            if accumulated > 1:
                model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulated)
            model.fit(images, labels, batch_size=1, verbose=0)
            return model.train_function.latest_program().engine_program
    finally:
        keras.config.set_dtype_policy("float32")


def estimated(program: Program, tiles: int | None = None) -> Estimate:
    """The estimate on a Mk2, as Graphcore's tests were: without the code of vertices (compile_ipu_code = False)."""
    return estimate(program, target("ipu2", tiles), assumptions=Assumptions(code_bytes=False))


def small_points() -> Iterator[Point]:
    """Points that need no Keras. The worst tile of the two products holds an eighth of all: they ran on 8 tiles."""
    products = estimated(two_products(), 8)
    yield Point("two fp16 products of 1,024 x 1,024, 8 tiles", 13_796_576, _total(products))
    yield Point("  its fullest tile", 1_732_922, int(products.tiles.peak_bytes.max()))
    rows = (("training, batch 2", 2, True, 16_126_623), ("training, batch 1", 1, True, 7_738_391))
    for name, batch, trained, published in (*rows, ("inference, batch 2", 2, False, 12_181_182)):
        yield Point(f"perceptron, {name}", published, _total(estimated(perceptron(batch, trained))))


def residual_points() -> Iterator[Point]:
    """Points of the network like a ResNet, whose exact layers are not known."""
    rows: tuple[tuple[str, int, Callable[[], Program]], ...] = (
        ("inference", 25_260_426, lambda: residual_program(trained=False)),
        ("gradient descent", 39_743_117, residual_program),
        ("momentum", 41_844_478, lambda: residual_program(0.9)),
        ("accumulation", 42_952_761, lambda: residual_program(accumulated=4)),
        ("momentum and accumulation", 43_220_853, lambda: residual_program(0.9, accumulated=4)),
    )
    for name, published, make in rows:
        yield Point(f"like a ResNet, {name}", published, _total(estimated(make())))


def table(points: Iterator[Point]) -> str:
    """One point per line: name, published, estimate, error."""
    lines = [f"{'bytes':<48}{'published':>12}{'estimate':>12}{'error':>8}"]
    lines += [f"{p.name:<48}{p.published:>12,}{p.estimate:>12,}{p.error:>+8.0%}" for p in points]
    return "\n".join(lines)


def _total(found: Estimate) -> int:
    return int(found.tiles.peak_bytes.sum())


if __name__ == "__main__":
    print(table(small_points()))
    print(table(residual_points()).split("\n", 1)[1])
