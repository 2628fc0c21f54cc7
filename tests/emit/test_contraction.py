"""Multiply-adds in updates: where they are made, how accurate they are, and that units do not change results."""

import numpy as np
import pytest

from engine.compile import build_program
from engine.emit.codelet import emit_codelet
from engine.emit.contraction import contracted
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.passes.reciprocal_square_roots import reciprocal_square_roots
from engine.program.nest import MultiplyAdd, Nest
from engine.program.work.fused_loop import FusedLoop
from tests.engine.running import fast

RATE, SHARE, LEAST = np.float32(1e-3), np.float32(0.1), np.float32(1e-7)


def mean(b: Builder, old: Instruction, new: Instruction) -> Instruction:
    return b.add(old, b.multiply(b.subtract(new, old), b.splat(float(SHARE), old.array_shape.dimensions)))


def update(rule: str, shape: tuple[int, ...]) -> Module:
    """New weights and slots of RMSprop or Adam: weight, gradient, mean square, and Adam's mean."""
    b = Builder()
    weight, gradient, square, direction = (b.parameter("f32", shape) for _ in range(4))
    square = mean(b, square, b.multiply(gradient, gradient))
    if rule == "Adam":
        direction = mean(b, direction, gradient)
        divisor = b.add(b.elementwise("sqrt", square), b.splat(float(LEAST), shape))
        step = b.divide(b.multiply(direction, b.splat(float(RATE), shape)), divisor)
    else:
        divisor = b.elementwise("sqrt", b.add(square, b.splat(float(LEAST), shape)))
        step = b.divide(b.multiply(gradient, b.splat(float(RATE), shape)), divisor)
    return b.module(b.tuple(b.subtract(weight, step), square, direction))


def arguments(shape: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    weight, gradient, direction = (rng.normal(size=shape).astype(np.float32) for _ in range(3))
    return [weight, gradient, rng.random(shape, np.float32), direction]


def nest_of(module: Module) -> Nest:
    """The longest loop nest of a module."""
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    nests = [each.work.nest for each in program.compute_sets if isinstance(each.work, FusedLoop)]
    return max(nests, key=lambda nest: len(nest.nodes))


@pytest.mark.parametrize(("rule", "count"), [("RMSprop", 3), ("Adam", 4)])
def test_sums_of_products_are_multiply_adds(rule: str, count: int) -> None:
    nest = nest_of(update(rule, (64, 32)))
    made = contracted(nest)
    assert sum(isinstance(node, MultiplyAdd) for node in made.nodes) == count
    assert len(made.nodes) == len(nest.nodes) and made.stores == nest.stores
    assert any(isinstance(node, MultiplyAdd) and node.divides for node in made.nodes) == (rule == "Adam")
    assert contracted(made) == made


@pytest.mark.parametrize("opcode", ["subtract", "add"])
def test_differences_of_equal_products_are_zero(opcode: str) -> None:
    """The update is of a weight whose gradient is such a difference, and is divided by its own size."""
    b = Builder()
    weight, x, y, mean = (b.parameter("f32", (1000,)) for _ in range(4))
    other = b.multiply(mean, y) if opcode == "subtract" else b.elementwise("negate", b.multiply(mean, y))
    gradient = b.elementwise(opcode, b.multiply(x, y), other)
    size = b.elementwise("sqrt", b.add(b.multiply(gradient, gradient), b.splat(1e-30, (1000,))))
    module = b.module(b.subtract(weight, b.divide(gradient, size)))
    given = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    np.testing.assert_array_equal(fast(module, [*given, given[1]])[0][0], given[0])


def test_other_nests_round_every_operation() -> None:
    b = Builder()
    x, y, z = (b.parameter("f32", (64,)) for _ in range(3))
    nest = nest_of(b.module(b.add(b.multiply(x, y), z)))
    assert contracted(nest) is nest and "@llvm.fma" not in emit_codelet(nest, "name", 16).replace('"', "")


@pytest.mark.parametrize("rule", ["RMSprop", "Adam"])
@pytest.mark.parametrize("shape", [(1,), (15,), (16,), (1000,), (37, 53)])
def test_updates_are_near_the_exact_ones(rule: str, shape: tuple[int, ...]) -> None:
    """Tolerances are five ULP of the step, and one of the variable."""
    given = arguments(shape)
    weight, gradient, square, direction = (each.astype(np.float64) for each in given)
    square = square + (gradient * gradient - square) * SHARE
    if rule == "Adam":
        direction = direction + (gradient - direction) * SHARE
        step = direction * RATE / (np.sqrt(square) + LEAST)
    else:
        step = gradient * RATE / np.sqrt(square + LEAST)
    got, _ = fast(update(rule, shape), given)
    assert np.all(np.abs(got[0] - (weight - step)) <= 2.0**-23 * np.abs(weight - step) + 8 * 2.0**-23 * np.abs(step))
    # Terms may cancel in the difference for a mean, so its error is measured relative to those terms.
    assert np.all(np.abs(got[1] - square) <= 2.0**-22 * (gradient * gradient + given[2]))
    assert np.all(np.abs(got[2] - direction) <= 2.0**-22 * (np.abs(gradient) + np.abs(given[3])))


@pytest.mark.parametrize("rule", ["RMSprop", "Adam"])
def test_special_values_come_out_as_without(rule: str) -> None:
    """Zero, infinite, NaN and denormal gradients and means."""
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, -3e-20], np.float32)
    gradient, square = (each.reshape(-1).copy() for each in np.meshgrid(special, np.abs(special)))
    weight, direction = np.ones_like(gradient), np.zeros_like(gradient)
    module = update(rule, gradient.shape)
    with np.errstate(all="ignore"):
        flushed = np.where(np.abs(gradient) < 1.2e-38, 0, gradient), np.where(square < 1.2e-38, 0, square)
        g, s = flushed
        new = s + (g * g - s) * SHARE
        mean_of = direction + (g - direction) * SHARE
        step = mean_of * RATE / (np.sqrt(new) + LEAST) if rule == "Adam" else g * RATE / np.sqrt(new + LEAST)
        expected = weight - step
    got, _ = fast(module, [weight, gradient, square, direction])
    np.testing.assert_allclose(got[0], expected, rtol=1e-6)
    np.testing.assert_allclose(got[1], new, rtol=1e-6, atol=1.2e-38)


@pytest.mark.parametrize("rule", ["RMSprop", "Adam"])
def test_whole_vectors_and_rests_give_the_same_bits(rule: str) -> None:
    """An element's result does not depend on its place in a row, nor so on how units are divided."""
    given = arguments((1000,), 1)
    whole, _ = fast(update(rule, (1000,)), given)
    for start, stop in ((0, 7), (500, 515), (3, 999)):
        part, _ = fast(update(rule, (stop - start,)), [each[start:stop].copy() for each in given])
        for one, other in zip(part, whole, strict=True):
            np.testing.assert_array_equal(one, other[start:stop])


def test_the_pass_says_that_estimates_will_do() -> None:
    after = reciprocal_square_roots(update("RMSprop", (8,)))
    assert [i["result_accuracy"] for i in after.entry.instructions if i.opcode == "rsqrt"] == [2]
