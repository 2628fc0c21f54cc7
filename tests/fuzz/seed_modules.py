"""Small modules of all kinds and random sizes, which mutations start from: what front ends make of layers and steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.ir import (
    Computation,
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
from tests.lower.random_modules import SHAPES, Maker
from tests.passes.random_modules import RandomModule

MOST_ELEMENTS = 200_000
IMAGES = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))


def seed_module(rng: np.random.Generator) -> Module:
    """One of the modules, small enough to run in a second."""
    while True:
        module = TEMPLATES[int(rng.integers(len(TEMPLATES)))](rng)
        shapes = [shape for c in module.computations() for i in c.instructions for shape in i.tuple_shapes]
        if sum(shape.elements for shape in shapes) <= MOST_ELEMENTS:
            return module


def size(rng: np.random.Generator) -> int:
    """Draws mostly small sizes; now and then one that divides work into units, and sums into parts."""
    if rng.random() < 0.06:
        return int(rng.choice([130, 600, 2100, 5000]))
    return int(rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 33]))


def kind(rng: np.random.Generator) -> str:
    return str(rng.choice(["f32", "f32", "f32", "f16", "bf16", "f64"]))


def compared(direction: str, element_types: tuple[str, ...] = ("f32",)) -> Computation:
    """A comparator for sort or select, which compares the first two parameters."""
    b = Builder(f"{direction}.{len(element_types)}")
    parameters = [b.parameter(t) for t in element_types for _ in range(2)]
    return b.build(b.compare(parameters[0], parameters[1], direction))


def classifier(rng: np.random.Generator) -> Module:
    """softmax(tanh(x w + b) v), and its cross entropy."""
    b, t = Builder("classifier"), kind(rng)
    rows, inputs, hidden, classes = (size(rng) for _ in range(4))
    x, w, bias, v = (b.parameter(t, d) for d in ((rows, inputs), (inputs, hidden), (hidden,), (hidden, classes)))
    h = b.elementwise("tanh", b.add(b.dot(x, w), b.broadcast(bias, (rows, hidden), (1,))))
    logits = b.dot(h, v)
    largest = b.reduce(logits, b.constant(-np.inf, t), (1,), "maximum")
    shifted = b.subtract(logits, b.broadcast(largest, (rows, classes), (0,)))
    powers = b.elementwise("exponential", shifted)
    sums = b.reduce(powers, b.constant(0.0, t), (1,))
    scores = b.divide(powers, b.broadcast(sums, (rows, classes), (0,)))
    loss = b.subtract(b.elementwise("log", sums), b.reduce(b.multiply(shifted, scores), b.constant(0.0, t), (1,)))
    return b.module(b.tuple(scores, loss))


def step(rng: np.random.Generator) -> Module:
    """A step of a regression with momentum; the weights and their velocity are updated."""
    b = Builder("step")
    rows, inputs, outputs = (size(rng) for _ in range(3))
    w, velocity = b.parameter("f32", (inputs, outputs)), b.parameter("f32", (inputs, outputs))
    x, y = b.parameter("f32", (rows, inputs)), b.parameter("f32", (rows, outputs))
    error = b.subtract(b.dot(x, w), y)
    gradient = b.dot(x, error, DotDimensionNumbers((0,), (0,)))
    norm = b.elementwise("sqrt", b.reduce(b.multiply(gradient, gradient), b.constant(0.0), (0, 1)))
    scale = b.divide(b.constant(1.0), b.elementwise("maximum", norm, b.constant(1.0)))
    clipped = b.multiply(gradient, b.broadcast(scale, (inputs, outputs), ()))
    new = b.add(b.multiply(velocity, b.splat(0.9, (inputs, outputs))), clipped)
    moved = b.subtract(w, b.multiply(new, b.splat(0.1, (inputs, outputs))))
    return b.module(b.tuple(moved, new, b.reduce(b.multiply(error, error), b.constant(0.0), (0, 1))), {0: 0, 1: 1})


def network(rng: np.random.Generator) -> Module:
    """Convolution, bias, relu, pools of both kinds, and the gradient of one."""
    b, t = Builder("network"), str(rng.choice(["f32", "f32", "f16"]))
    batch, features, filters = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 9))
    height, width = int(rng.integers(3, 9)), int(rng.integers(3, 9))
    x, kernel = b.parameter(t, (batch, height, width, features)), b.parameter(t, (3, 2, features, filters))
    stride = int(rng.integers(1, 3))
    y = b.convolution(x, kernel, (WindowDimension(3, stride, 1, 1), WindowDimension(2, 1)), IMAGES)
    shape = y.array_shape
    y = b.add(y, b.broadcast(b.parameter(t, (filters,)), shape.dimensions, (3,)))
    y = b.elementwise("maximum", y, b.splat(0.0, shape.dimensions, t))
    window = (WindowDimension(1), WindowDimension(2, 2, 0, 1), WindowDimension(2, 1), WindowDimension(1))
    largest = b.reduce_window(y, b.constant(-np.inf, t), window, "maximum")
    sums = b.reduce_window(y, b.constant(0.0, t), window, "add")
    called = (compared("GE", (t,)), binary_computation("add", t))
    back = b.inferred("select-and-scatter", (y, largest, b.constant(0.0, t)), called, window=window)
    return b.module(b.tuple(b.subtract(largest, sums), back))


def transposed_network(rng: np.random.Generator) -> Module:
    """A dilated convolution, and one of groups."""
    b = Builder("transposed")
    channels = int(rng.choice([2, 4, 4, 400]))
    x = b.parameter("f32", (2, int(rng.integers(2, 6)), 3, channels))
    kernel = b.parameter("f32", (3, 2, channels, size(rng)))
    window = (WindowDimension(3, 1, 2, 2, 1, 2), WindowDimension(2, 1, 1, 1, 1, 2))
    wide = b.convolution(x, b.reverse(kernel, (0, 1)), window, IMAGES)
    grouped = b.convolution(
        x, b.parameter("f32", (2, 2, 1, 2 * channels)), (WindowDimension(2), WindowDimension(2)), IMAGES, channels
    )
    return b.module(b.tuple(wide, grouped))


def larger_with_index(t: str) -> Computation:
    b = Builder("larger")
    value, index, other, other_index = (b.parameter(k) for k in (t, "s32", t, "s32"))
    greater, equal = b.compare(value, other, "GE"), b.compare(value, other, "EQ")
    first = b.select(greater, index, other_index)
    least = b.elementwise("minimum", index, other_index)
    return b.build(b.tuple(b.select(greater, value, other), b.select(equal, least, first)))


def orders(rng: np.random.Generator) -> Module:
    """Builds argmax, the largest values, cumulative sums, and a gather by a sort's indices."""
    b = Builder("orders")
    rows, columns = size(rng), size(rng)
    x = b.parameter("f32", (rows, columns))
    index = b.iota("s32", (rows, columns), 1)
    start = (b.constant(-np.inf), b.constant(0, "s32"))
    found = b.inferred("reduce", (x, index, *start), (larger_with_index("f32"),), dimensions=(1,))
    ordered = b.inferred("sort", (x, index), (compared("GT", ("f32", "s32")),), dimensions=(1,), is_stable=True)
    window = (WindowDimension(1), WindowDimension(columns, 1, columns - 1, 0))
    cumulative = b.reduce_window(x, b.constant(0.0), window)
    hot = b.compare(b.broadcast(b.get_tuple_element(found, 1), (rows, columns), (0,)), index, "EQ")
    masked = b.select(hot, x, b.splat(0.0, (rows, columns)))
    return b.module(b.tuple(b.get_tuple_element(ordered, 0), b.get_tuple_element(ordered, 1), cumulative, masked))


def embedding(rng: np.random.Generator) -> Module:
    """Rows of a table, and the update of those rows."""
    b = Builder("embedding")
    words, width, count = size(rng), size(rng), size(rng)
    table, ids = b.parameter("f32", (words, width)), b.parameter("s32", (count, 1))
    rows = GatherDimensionNumbers((1,), (0,), (0,), 1)
    taken = b.inferred("gather", (table, ids), gather_dimension_numbers=rows, gather_slice_sizes=(1, width))
    gradient = b.multiply(b.elementwise("sine", taken), b.parameter("f32", (count, width)))
    zeros = b.splat(0.0, (words, width))
    numbers = ScatterDimensionNumbers((1,), (0,), (0,), 1)
    called = (binary_computation("add", "f32"),)
    summed = b.inferred("scatter", (zeros, ids, gradient), called, scatter_dimension_numbers=numbers)
    moved = b.subtract(table, b.multiply(summed, b.splat(0.5, (words, width))))
    return b.module(b.tuple(moved, b.reduce(taken, b.constant(0.0), (0,))), {0: 0})


def recurrence(rng: np.random.Generator) -> Module:
    """A loop over time steps: h = tanh(x[t] + h w), with all states kept."""
    steps, rows, units = int(rng.integers(1, 6)), int(rng.integers(1, 5)), int(rng.integers(1, 9))
    shapes = [
        Shape("s32"),
        Shape("f32", (rows, units)),
        Shape("f32", (steps, rows, units)),
        Shape("f32", (steps, rows, units)),
        Shape("f32", (units, units)),
    ]
    b = Builder("recurrence")
    parameters = [b.parameter_of(s) for s in (shapes[1], shapes[3], shapes[4])]
    empty = b.splat(0.0, shapes[2].dimensions)
    state = b.tuple(b.constant(0, "s32"), parameters[0], empty, parameters[1], parameters[2])
    c = Builder("condition")
    seen = c.parameter_of(state.shape)
    condition = c.build(c.compare(c.get_tuple_element(seen, 0), c.constant(steps, "s32"), "LT"))
    d = Builder("body")
    seen = d.parameter_of(state.shape)
    t, h, kept, xs, w = (d.get_tuple_element(seen, k) for k in range(5))
    zero = d.constant(0, "s32")
    x = d.inferred("dynamic-slice", (xs, t, zero, zero), dynamic_slice_sizes=(1, rows, units))
    new = d.elementwise("tanh", d.add(d.reshape(x, (rows, units)), d.dot(h, w)))
    kept = d.inferred("dynamic-update-slice", (kept, d.reshape(new, (1, rows, units)), t, zero, zero))
    body = d.build(d.tuple(d.add(t, d.constant(1, "s32")), new, kept, xs, w))
    loop = b.instruction("while", state.shape, (state,), (body, condition))
    return b.module(b.tuple(b.get_tuple_element(loop, 1), b.get_tuple_element(loop, 2)))


def branches(rng: np.random.Generator) -> Module:
    """A branch by a pred and one by an index."""
    shape = (size(rng), size(rng))
    b = Builder("branches")
    x, which = b.parameter("f32", shape), b.parameter("s32")

    def branch(opcode: str) -> Computation:
        inner = Builder(opcode)
        p = inner.parameter("f32", shape)
        return inner.build(inner.add(inner.elementwise(opcode, p), p))

    total = b.reduce(x, b.constant(0.0), (0, 1))
    positive = b.compare(total, b.constant(0.0), "GT")
    first = b.conditional(positive, (branch("sine"), branch("negate")), (x, x))
    second = b.conditional(which, (branch("cosine"), branch("abs"), branch("floor")), (first, x, first))
    return b.module(b.tuple(first, second))


def integers(rng: np.random.Generator) -> Module:
    """Floor division, bits, a hash of counts."""
    shape, t = (size(rng), size(rng)), str(rng.choice(["s32", "s64", "s8", "u8", "u32"]))
    b = Builder("integers")
    x = b.parameter(t, shape)
    seven = b.splat(7, shape, t)
    quotient = b.divide(x, seven)
    inexact = b.compare(b.multiply(quotient, seven), x, "NE")
    negative = b.compare(x, b.splat(0, shape, t), "LT")
    low = b.subtract(quotient, b.splat(1, shape, t))
    floored = b.select(b.elementwise("and", inexact, negative), low, quotient)
    counts = b.iota(t, shape, 1)
    mixed = b.elementwise("xor", b.multiply(counts, seven), b.elementwise("shift-left", x, b.splat(2, shape, t)))
    rest = b.elementwise("remainder", mixed, seven)
    total = b.reduce(mixed, b.constant(0, t), (1,), "or")
    return b.module(b.tuple(floored, rest, b.convert(total, "f32"), b.convert(b.convert(rest, "f32"), t)))


def half(rng: np.random.Generator) -> Module:
    """A loss in f16 that is scaled, and unscaled in f32, and whether everything is finite."""
    rows, inputs, outputs = (size(rng) for _ in range(3))
    b = Builder("halves")
    x, w = b.parameter("f32", (rows, inputs)), b.parameter("f32", (inputs, outputs))
    y = b.dot(b.convert(x, "f16"), b.convert(w, "f16"))
    scaled = b.multiply(y, b.splat(128.0, (rows, outputs), "f16"))
    gradient = b.convert(b.dot(b.convert(x, "f16"), scaled, DotDimensionNumbers((0,), (0,))), "f32")
    unscaled = b.multiply(gradient, b.splat(1 / 128, (inputs, outputs)))
    finite = b.elementwise("is-finite", unscaled)
    every = b.reduce(finite, b.constant(True, "pred"), (0, 1), "and")
    new = b.subtract(w, unscaled)
    kept = b.select(b.broadcast(every, (inputs, outputs), ()), new, w)
    return b.module(b.tuple(kept, every, b.reduce(y, b.constant(0.0, "f16"), (0, 1))))


def statistics(rng: np.random.Generator) -> Module:
    """Normalisation over all dimensions but the features, and moving averages."""
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 5)), size(rng))
    b = Builder("statistics")
    x, gamma, moving = b.parameter("f32", shape), b.parameter("f32", shape[-1:]), b.parameter("f32", shape[-1:])
    count = float(shape[0] * shape[1])
    mean = b.divide(b.reduce(x, b.constant(0.0), (0, 1)), b.splat(count, shape[-1:]))
    centred = b.subtract(x, b.broadcast(mean, shape, (2,)))
    variance = b.divide(b.reduce(b.multiply(centred, centred), b.constant(0.0), (0, 1)), b.splat(count, shape[-1:]))
    rooted = b.elementwise("rsqrt", b.add(variance, b.splat(1e-3, shape[-1:])))
    y = b.multiply(centred, b.broadcast(b.multiply(rooted, gamma), shape, (2,)))
    new = b.add(b.multiply(moving, b.splat(0.99, shape[-1:])), b.multiply(mean, b.splat(0.01, shape[-1:])))
    padded = b.pad(y, b.constant(0.0), (0, 1), (1, 0, 1), (0, 0))
    joined = b.concatenate([y, b.reverse(y, (1,))], 1)
    return b.module(b.tuple(b.transpose(padded, (2, 0, 1)), new, joined), {2: 1})


def attention(rng: np.random.Generator) -> Module:
    """Products with batches, a mask and a softmax."""
    batch, heads, length, width = (int(rng.integers(1, 5)) for _ in range(4))
    shape = (batch, length, heads, width)
    b = Builder("attention")
    q, k, v = (b.parameter("f32", shape) for _ in range(3))
    scores = b.dot(q, k, DotDimensionNumbers((3,), (3,), (0, 2), (0, 2)))
    square = (batch, heads, length, length)
    causal = b.compare(b.iota("s32", square, 2), b.iota("s32", square, 3), "GE")
    masked = b.select(causal, scores, b.splat(-1e9, square))
    largest = b.reduce(masked, b.constant(-np.inf), (3,), "maximum")
    powers = b.elementwise("exponential", b.subtract(masked, b.broadcast(largest, square, (0, 1, 2))))
    sums = b.broadcast(b.reduce(powers, b.constant(0.0), (3,)), square, (0, 1, 2))
    mixed = b.dot(b.divide(powers, sums), v, DotDimensionNumbers((3,), (1,), (0, 1), (0, 2)))
    return b.module(b.reshape(b.transpose(mixed, (0, 2, 1, 3)), (batch, length, heads * width)))


def algebra(rng: np.random.Generator) -> Module:
    """Spectra, and a system of equations."""
    b, n = Builder("algebra"), int(rng.integers(1, 6))
    x, m = b.parameter("f32", (2, 6)), b.parameter("f32", (2, n, n))
    zero = b.splat(0.0, (2, 6))
    spectrum = b.instruction(
        "fft", Shape("c64", (2, 6)), (b.elementwise("complex", x, zero),), fft_type="FFT", fft_length=(6,)
    )
    identity = b.convert(b.compare(b.iota("s32", (2, n, n), 1), b.iota("s32", (2, n, n), 2), "EQ"), "f32")
    square = b.add(b.dot(m, m, DotDimensionNumbers((2,), (2,), (0,), (0,))), identity)
    factor = b.elementwise("cholesky", square, lower=True)
    options = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
    solved = b.inferred("triangular-solve", (factor, m), **options)
    return b.module(b.tuple(b.elementwise("real", spectrum), b.elementwise("imag", spectrum), solved))


def moves(rng: np.random.Generator) -> Module:
    return RandomModule(int(rng.integers(1 << 30)), int(rng.integers(12, 40)), sums=True).module()


def fusions(rng: np.random.Generator) -> Module:
    maker = Maker(int(rng.integers(1 << 30)), SHAPES)
    module = maker.module(int(rng.integers(5, 25)), variables=int(rng.integers(0, 3)))
    assert all(isinstance(i, Instruction) for i in module.entry.instructions)
    return module


TEMPLATES: tuple[Callable[[np.random.Generator], Module], ...] = (
    *(classifier, step, network, transposed_network, orders, embedding, recurrence, branches, integers, half),
    *(statistics, attention, algebra, moves, fusions),
)
