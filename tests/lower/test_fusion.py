"""Fusion and its lowering: random modules, and the shapes of programs that once went wrong."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program, prepare
from engine.ir import Shape, TupleShape
from engine.ir.builder import Builder
from engine.program.work.fused_loop import FusedLoop
from tests.engine.running import check, fast
from tests.lower.random_modules import LARGE, SHAPES, Maker
from tests.passes.checking import arguments_for
from tests.passes.random_modules import RandomModule
from tests.passes.test_merged_dimensions import argmax_body


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(60))
def test_random_modules(seed: int) -> None:
    check(Maker(seed, SHAPES).module(int(5 + seed % 30)), tolerance=2e-4)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(20))
def test_random_modules_of_many_units(seed: int) -> None:
    check(Maker(seed, LARGE).module(25), tolerance=2e-3)


@pytest.mark.sample(15)
@pytest.mark.parametrize("seed", range(60))
def test_random_modules_of_all_types_and_special_values(seed: int) -> None:
    """NaN, infinities, extremes and empty arrays; no denormals, which the executor flushes."""
    module = RandomModule(seed, 60, sums=seed % 2 == 0).module()
    arguments = arguments_for(module, seed)
    flushed = [np.where(np.abs(x) < 1e-37, 0, x).astype(x.dtype) if x.dtype == np.float32 else x for x in arguments]
    check(module, flushed, tolerance=2e-3)


def test_conversion_read_by_nothing_but_moves_and_results() -> None:
    builder = Builder()
    x = builder.parameter("f32", (4, 1, 6))
    whole = builder.convert(x, "s32")
    turned = builder.transpose(whole, (2, 0, 1))
    check(builder.module(builder.tuple(turned, builder.reshape(turned, (6, 4)))))
    builder = Builder()
    x, y = builder.parameter("f16", (4, 6)), builder.parameter("f32", (4, 5))
    builder.dot(builder.transpose(builder.convert(x, "f32"), (1, 0)), y)
    check(builder.module())


def test_softmax_cross_entropy_gradient() -> None:
    builder = Builder()
    x, labels = builder.parameter("f32", (33, 10)), builder.parameter("s32", (33,))
    shape = (33, 10)
    peak = builder.reduce(x, builder.constant(-np.inf), (1,), "maximum")
    shifted = builder.subtract(x, builder.broadcast(peak, shape, (0,)))
    power = builder.elementwise("exponential", shifted)
    total = builder.reduce(power, builder.constant(0.0), (1,))
    probability = builder.divide(power, builder.broadcast(total, shape, (0,)))
    count = builder.iota("s32", shape, 1)
    hit = builder.compare(count, builder.broadcast(labels, shape, (0,)), "EQ")
    one_hot = builder.convert(hit, "f32")
    log = builder.subtract(shifted, builder.broadcast(builder.elementwise("log", total), shape, (0,)))
    loss = builder.reduce(builder.multiply(log, one_hot), builder.constant(0.0), (0, 1))
    gradient = builder.subtract(probability, one_hot)
    bias = builder.reduce(gradient, builder.constant(0.0), (0,))
    module = builder.module(builder.tuple(builder.elementwise("negate", loss), gradient, bias))
    rng = np.random.default_rng(0)
    check(module, [rng.normal(size=shape).astype("f"), rng.integers(0, 10, 33).astype("i")])


def test_batch_statistics() -> None:
    builder = Builder()
    shape = (8, 9, 7, 16)
    x, scale = builder.parameter("f32", shape), builder.parameter("f32", (16,))
    size = builder.splat(1 / 504, (16,))
    mean = builder.multiply(builder.reduce(x, builder.constant(0.0), (0, 1, 2)), size)
    centred = builder.subtract(x, builder.broadcast(mean, shape, (3,)))
    squares = builder.multiply(centred, centred)
    variance = builder.multiply(builder.reduce(squares, builder.constant(0.0), (0, 1, 2)), size)
    factor = builder.multiply(builder.elementwise("rsqrt", variance), scale)
    result = builder.multiply(centred, builder.broadcast(factor, shape, (3,)))
    positive = builder.elementwise("maximum", result, builder.splat(0.0, shape))
    check(builder.module(builder.tuple(positive, mean, variance)))


def test_units_of_sums_over_transposed_arrays_read_whole_cache_lines() -> None:
    builder = Builder()
    x, y = builder.parameter("f32", (20, 64, 30)), builder.parameter("f32", (20, 30, 64))
    product = builder.multiply(builder.transpose(x, (0, 2, 1)), y)
    module = builder.module(builder.reduce(product, builder.constant(0.0), (0, 1)))
    partial = build_program(module, ["variable"] * 2, {}).compute_sets[0].work
    assert isinstance(partial, FusedLoop) and partial.nest.partition == 0
    check(module)


@pytest.mark.parametrize(("lines", "terms", "sets"), [(32, 50_257, 1), (8, 50_257, 2), (32, 70_000, 2)])
def test_sums_of_a_vocabulary_are_not_split(lines: int, terms: int, sets: int) -> None:
    """Sums of enough lines stay whole: split ones would be read again from beyond the cache."""
    b = Builder()
    module = b.module(b.reduce(b.parameter("f32", (lines, terms)), b.constant(0.0), (1,)))
    assert len(build_program(module, ["variable"], {}).compute_sets) == sets
    values = np.random.default_rng(lines).random((lines, terms), np.float32)
    np.testing.assert_allclose(fast(module, [values])[0][0], values.sum(1, dtype=np.float64), rtol=2e-6)


def test_a_chain_is_one_codelet() -> None:
    builder = Builder()
    x, bias = builder.parameter("f32", (20, 30)), builder.parameter("f32", (30,))
    y = builder.add(x, builder.broadcast(bias, (20, 30), (1,)))
    for opcode in ("negate", "exponential", "tanh", "cosine"):
        y = builder.elementwise(opcode, y)
    builder.reduce(y, builder.constant(0.0), (0,))
    program = build_program(builder.module(), ["variable"] * 2, {})
    assert len(program.compute_sets) == 1
    check(builder.module())


def test_a_result_between_two_fusable_halves_is_read_from_memory() -> None:
    """b = f(a); c = g(dot(b)); d = b + c: joining f and + would make a cycle through the dot."""
    builder = Builder()
    a = builder.parameter("f32", (24, 24))
    b = builder.elementwise("tanh", a)
    c = builder.elementwise("negate", builder.dot(b, b))
    d = builder.add(b, c)
    check(builder.module(builder.tuple(d, b)))


def test_reductions_over_different_dimensions_of_one_value() -> None:
    builder = Builder()
    x = builder.parameter("f32", (40, 50))
    y = builder.elementwise("tanh", x)
    zero = builder.constant(0.0)
    sums = [builder.reduce(y, zero, dimensions) for dimensions in ((0,), (1,), (0, 1), ())]
    check(builder.module(builder.tuple(*sums, builder.reduce(y, builder.reduce(x, zero, (0, 1)), (1,)))))


def test_long_chains_do_not_recurse() -> None:
    builder = Builder()
    x = builder.parameter("f32", (4, 4))
    for number in range(1500):
        x = builder.elementwise("negate" if number % 99 else "tanh", x)
        if number % 100 == 99:
            x = builder.transpose(x, (1, 0))
    module = builder.module()
    assert len(prepare(module).entry.instructions) < 60
    check(module)


def test_unit_dimensions_come_and_go() -> None:
    builder = Builder()
    x = builder.parameter("f32", (5, 1, 7))
    y = builder.reshape(builder.elementwise("negate", x), (5, 7))
    z = builder.reshape(builder.add(y, y), (1, 5, 7, 1))
    total = builder.reduce(z, builder.constant(0.0), (0, 2))
    check(builder.module(builder.tuple(y, z, builder.reshape(total, (5,)), builder.reshape(z, (35,)))))


def test_scalars_alone() -> None:
    builder = Builder()
    x, y = builder.parameter("f32"), builder.parameter("s32")
    ones = builder.reshape(x, (1, 1))
    total = builder.reduce(builder.broadcast(x, (3, 4), ()), builder.constant(1.0), (0, 1))
    results = [builder.multiply(x, x), builder.convert(y, "f32"), builder.add(ones, ones), total]
    check(builder.module(builder.tuple(*results)))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 0, 2)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    builder = Builder()
    x = builder.parameter("f32", shape)
    y = builder.elementwise("tanh", builder.add(x, builder.splat(1.0, shape)))
    totals = [builder.reduce(y, builder.constant(2.0), range(n)) for n in range(len(shape) + 1)]
    check(builder.module(builder.tuple(y, *totals, builder.transpose(y, range(len(shape))[::-1]))))


@pytest.mark.parametrize("opcode", ["power", "subtract", "divide", "add", "maximum"])
def test_what_reads_a_reduction_of_one_element_beside_its_operand(opcode: str) -> None:
    """Bodies that do not commute are reduced even over one element, whose readers seem to have the same loops."""
    b = Builder()
    x = b.parameter("f32", (7, 1))
    shifted = b.subtract(x, b.splat(0.25, (7, 1)))
    exponential = b.elementwise("exponential", shifted)
    reduced = b.reduce(b.multiply(shifted, x), b.constant(1.5), (1,), opcode)
    log = b.elementwise("log", b.reduce(exponential, b.constant(0.0), (1,)))
    root = b.tuple(b.divide(exponential, exponential), b.subtract(log, reduced))
    check(b.module(root), [np.random.default_rng(0).uniform(1, 2, (7, 1)).astype(np.float32)], tolerance=1e-5)


@pytest.mark.parametrize("shape", [(7, 1), (1, 1), (7, 1, 5), (1,)])
def test_the_best_of_one_element(shape: tuple[int, ...]) -> None:
    """Several arrays are reduced together over dimensions of one element, alone or beside others."""
    dimensions = tuple(range(1, len(shape))) if len(shape) > 1 else (0,)
    left = tuple(size for d, size in enumerate(shape) if d not in dimensions)
    b = Builder()
    x = b.parameter("f32", shape)
    operands = x, b.iota("s32", shape, len(shape) - 1), b.constant(-np.inf), b.constant(9, "s32")
    pairs = TupleShape((Shape("f32", left), Shape("s32", left)))
    best = b.instruction("reduce", pairs, operands, (argmax_body(),), dimensions=dimensions)
    root = b.tuple(b.get_tuple_element(best, 0), b.get_tuple_element(best, 1))
    check(b.module(root), [np.random.default_rng(0).standard_normal(shape, np.float32)])
