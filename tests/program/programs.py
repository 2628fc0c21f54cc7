"""Programs that test the plans: training steps, chains over many units, gathers, windows, long sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.compile import build_program
from engine.ir import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    Instruction,
    Module,
    ScatterDimensionNumbers,
    Shape,
    WindowDimension,
)
from engine.ir.builder import Builder, binary_computation
from engine.program.program import Program
from tests.lower.random_modules import LARGE, SHAPES, Maker

Made = tuple[Module, list[str]]


def training_step(batch: int = 40, wide: int = 96, rate: float = 0.05) -> Made:
    """Two dense layers, their gradients and a momentum update: two feeds, eight variables, one loss."""
    b = Builder("training")
    x, y = b.parameter("f32", (batch, wide)), b.parameter("f32", (batch, 24))
    shapes = [(wide, 64), (64,), (64, 24), (24,)]
    weights = [b.parameter("f32", s) for s in shapes]
    moments = [b.parameter("f32", s) for s in shapes]
    zero = b.constant(0.0)
    first = b.add(b.dot(x, weights[0]), b.broadcast(weights[1], (batch, 64), (1,)))
    hidden = b.elementwise("tanh", first)
    out = b.add(b.dot(hidden, weights[2]), b.broadcast(weights[3], (batch, 24), (1,)))
    error = b.subtract(out, y)
    loss = b.reduce(b.multiply(error, error), zero, (0, 1))
    slope = b.multiply(error, b.splat(2.0 / batch, (batch, 24)))
    back = b.dot(slope, weights[2], DotDimensionNumbers((1,), (1,)))
    one = b.splat(1.0, (batch, 64))
    inner = b.multiply(back, b.subtract(one, b.multiply(hidden, hidden)))
    transposed = DotDimensionNumbers((0,), (0,))
    gradients = [
        b.dot(x, inner, transposed),
        b.reduce(inner, zero, (0,)),
        b.dot(hidden, slope, transposed),
        b.reduce(slope, zero, (0,)),
    ]
    new_weights, new_moments = [], []
    for weight, moment, gradient in zip(weights, moments, gradients, strict=True):
        s = weight.array_shape.dimensions
        moved = b.add(b.multiply(moment, b.splat(0.9, s)), gradient)
        new_moments.append(moved)
        new_weights.append(b.subtract(weight, b.multiply(moved, b.splat(rate, s))))
    results = [loss, *new_weights, *new_moments]
    aliases = {2 + k: 1 + k for k in range(8)}
    return b.module(b.tuple(*results), aliases), ["feed"] * 2 + ["variable"] * 8


def convolution_step() -> Made:
    """Builds a convolution, pooling, its gradient and an update, with padding, windows and scattered gradients."""
    b = Builder("convolution")
    x, kernel = b.parameter("f32", (4, 18, 18, 3)), b.parameter("f32", (3, 3, 3, 8))
    side = WindowDimension(3, 1, 1, 1)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    y = b.elementwise("maximum", b.convolution(x, kernel, (side, side), numbers), b.splat(0.0, (4, 18, 18, 8)))
    two = WindowDimension(2, 2)
    pooling = (WindowDimension(1), two, two, WindowDimension(1))
    pooled = b.reduce_window(y, b.constant(-np.inf), pooling, "maximum")
    loss = b.reduce(b.multiply(pooled, pooled), b.constant(0.0), (0, 1, 2, 3))
    select = Builder("select")
    ge = select.build(select.compare(select.parameter("f32"), select.parameter("f32"), "GE"))
    bodies = (ge, binary_computation("add", "f32"))
    scattered = b.instruction("select-and-scatter", y.shape, (y, pooled, b.constant(0.0)), bodies, window=pooling)
    whole = WindowDimension(18, 1, 1, 1)
    swapped = ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
    gradient = b.convolution(x, scattered, (whole, whole), swapped)
    updated = b.subtract(kernel, b.multiply(gradient, b.splat(1e-4, (3, 3, 3, 8))))
    return b.module(b.tuple(loss, updated, pooled), {1: 1}), ["feed", "variable"]


def embedding_step() -> Made:
    """Builds a table of 300 x 64, too large for one worker, which is gathered and updated by a scatter."""
    b = Builder("embedding")
    places, table = b.parameter("s32", (50, 1)), b.parameter("f32", (300, 64))
    rows = b.instruction(
        *("gather", Shape("f32", (50, 64)), (table, places)),
        gather_dimension_numbers=GatherDimensionNumbers((1,), (0,), (0,), 1),
        gather_slice_sizes=(1, 64),
    )
    step = b.multiply(b.elementwise("tanh", rows), b.splat(-0.1, (50, 64)))
    updated = b.instruction(
        *("scatter", table.shape, (table, places, step), (binary_computation("add", "f32"),)),
        scatter_dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,), 1),
    )
    return b.module(b.tuple(updated, b.reduce(rows, b.constant(0.0), (0, 1))), {1: 0}), ["feed", "variable"]


def statistics_step() -> Made:
    """Builds long sums, split over units, over rows, columns and everything, each of which reads another."""
    b = Builder("statistics")
    x, mean = b.parameter("f32", (900, 70)), b.parameter("f32", (70,))
    zero = b.constant(0.0)
    columns = b.multiply(b.reduce(x, zero, (0,)), b.splat(1 / 900, (70,)))
    centred = b.subtract(x, b.broadcast(columns, (900, 70), (1,)))
    total = b.reduce(b.multiply(centred, centred), zero, (0, 1))
    peaks = b.reduce(centred, b.constant(-np.inf), (1,), "maximum")
    mixed = b.add(b.multiply(mean, b.splat(0.9, (70,))), b.multiply(columns, b.splat(0.1, (70,))))
    turned = b.transpose(centred, (1, 0))
    widest = b.reduce(turned, b.constant(np.inf), (0,), "minimum")
    return b.module(b.tuple(total, peaks, mixed, widest, turned), {1: 2}), ["feed", "variable"]


def products_step() -> Made:
    """Builds products large enough to be cut by rows, columns, batches and k, with transposed and strided operands."""
    b = Builder("products")
    shapes = [(8, 70, 64), (8, 64, 40), (500, 300), (300, 40), (20, 200), (200, 1000), (8, 20000), (20000, 9)]
    batched, right, tall, thin, low, wide, long, deep = (b.parameter("f32", s) for s in shapes)
    first = b.dot(batched, right, DotDimensionNumbers((2,), (1,), (0,), (0,)))
    second = b.dot(tall, thin)
    third = b.dot(wide, low, DotDimensionNumbers((0,), (1,)))
    results = [
        b.elementwise("tanh", first),
        b.elementwise("negate", second),
        b.transpose(third, (1, 0)),
        b.dot(long, deep),
        b.dot(b.reverse(tall, (0,)), b.reshape(b.slice(thin, (0, 300), (3, 4)), (300,))),
        b.dot(b.slice(tall, (0, 500, 2), (0, 300)), thin),
        b.reduce(b.dot(low, wide), b.constant(0.0), (0,)),
    ]
    return b.module(b.tuple(*results)), ["variable"] * len(shapes)


def moves_step() -> Made:
    """Builds moves of large arrays: transposed, padded, joined, cut with strides, and used again."""
    b = Builder("moves")
    x, y = b.parameter("f32", (60, 130)), b.parameter("f32", (130, 60))
    negative = b.elementwise("negate", x)
    turned = b.elementwise("tanh", b.transpose(negative, (1, 0)))
    padded = b.pad(turned, b.constant(2.0), (1, 3), (0, 4, 1))
    joined = b.concatenate([turned, y, b.reverse(turned, (0,))], 0)
    half = b.slice(joined, (0, 390, 2), (1, 60))
    heads = b.reshape(negative, (6, 10, 130))
    swapped = b.add(
        b.transpose(heads, (1, 0, 2)), b.broadcast(b.reshape(b.slice(x, (3, 4), (0, 130)), (130,)), (10, 6, 130), (2,))
    )
    odd = b.multiply(b.elementwise("copy", b.reshape(swapped, (60, 130))), x)
    new = b.add(b.transpose(odd, (1, 0)), y)
    results = [new, padded, half, b.elementwise("negate", padded), swapped, b.add(half, half), joined]
    return b.module(b.tuple(*results), {1: 0}), ["variable"] * 2


def random_step(seed: int, shapes: tuple[tuple[int, ...], ...], steps: int) -> Callable[[], Made]:
    def make() -> Made:
        module = Maker(seed, shapes).module(steps, variables=4)
        return module, ["variable"] * len(module.entry.parameters)

    return make


PROGRAMS: dict[str, Callable[[], Made]] = {
    "training": training_step,
    "wide training": lambda: training_step(128, 400),
    "convolution": convolution_step,
    "embedding": embedding_step,
    "statistics": statistics_step,
    "products": products_step,
    "moves": moves_step,
    **{f"small {seed}": random_step(seed, SHAPES, 30) for seed in range(6)},
    **{f"large {seed}": random_step(seed, LARGE, 40) for seed in range(8)},
}


def program_of(name: str) -> Program:
    module, roles = PROGRAMS[name]()
    return build_program(module, roles, {}, verify=True)


def values_of(parameters: list[Instruction], rows: int = 1, seed: int = 0) -> list[np.ndarray]:
    """Small random numbers for each parameter; the first dimension is multiplied by `rows`."""
    rng = np.random.default_rng(seed)
    found = []
    for parameter in parameters:
        shape = parameter.array_shape
        dimensions = (shape.dimensions[0] * rows, *shape.dimensions[1:]) if rows > 1 else shape.dimensions
        values = rng.normal(size=dimensions) * 0.3 if shape.dtype.kind == "f" else rng.integers(0, 300, dimensions)
        found.append(np.asarray(values).astype(shape.dtype))
    return found
