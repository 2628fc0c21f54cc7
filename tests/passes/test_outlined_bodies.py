"""Outlined bodies are prepared and lowered once, a function together with its gradient, and equal the definitions."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import compile_module
from engine.evaluate import evaluate
from engine.ir import Computation, Instruction, Module
from engine.ir.attributes import DotDimensionNumbers
from engine.ir.builder import Builder
from engine.ir.outlining import call_of_body, has_outlined_calls, outlined_call
from engine.partition.accumulation import Accumulation
from engine.partition.repeat import repeat
from engine.partition.replicate import replicate
from engine.passes.inline_calls import inline_calls
from engine.passes.pass_list import run_pipelines
from engine.profile.program_estimate import estimate
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.feeds import RowFeed
from engine.target import target
from tests.partition.steps import mark

SHAPE = (4, 4)
RATE = 0.1
VALUES = [np.random.default_rng(k).normal(size=SHAPE).astype(np.float32) for k in range(2)]


def function() -> Computation:
    """A body that computes exp(x w / 2), and returns a parameter as a second result."""
    b = Builder("function")
    x, w = b.parameter("f32", SHAPE), b.parameter("f32", SHAPE)
    y = b.elementwise("exponential", b.multiply(b.dot(x, w), b.splat(0.5, SHAPE)))
    return b.build(b.tuple(y, x))


def gradient() -> Computation:
    """Builds gradients by x and w for the upstream gradient, the last parameter."""
    b = Builder("gradient")
    x, w, dy = (b.parameter("f32", SHAPE) for _ in range(3))
    half = b.splat(0.5, SHAPE)
    y = b.elementwise("exponential", b.multiply(b.dot(x, w), half))
    product = b.multiply(b.multiply(dy, y), half)
    by_x = b.dot(product, w, DotDimensionNumbers((1,), (1,)))
    return b.build(b.tuple(by_x, b.dot(x, product, DotDimensionNumbers((0,), (0,)))))


def module(layers: int = 2, paired: bool = True) -> Module:
    """Layers one after the other, and their gradients, with bodies of their own."""
    b = Builder()
    x, w = b.parameter("f32", SHAPE), b.parameter("f32", SHAPE)
    return b.module(b.tuple(*results(b, x, w, layers, paired)))


def training_step(numbers: int = 2, hidden: bool = False) -> Module:
    """A step that updates w by the gradient of two layers; their calls have `numbers` different numbers.

    With `hidden` the old w is a result of a call that also depends on the batch.
    """
    b = Builder()
    x, w = b.parameter("f32", SHAPE), b.parameter("f32", SHAPE)
    y, *by_w, _ = results(b, x, w, numbers=numbers)
    if hidden:
        b.instructions[-1] = call_of_body(b.call(function(), w, x), function(), "hidden", False)
        w = b.get_tuple_element(b.instructions[-1], 1)
    new = b.subtract(w, b.multiply(b.splat(RATE, SHAPE), mark(b, b.add(*by_w))))
    return b.module(b.tuple(y, new), {1: 1})


def results(
    b: Builder, x: Instruction, w: Instruction, layers: int = 2, paired: bool = True, numbers: int = 9
) -> list[Instruction]:
    """The last layer's result; the gradients of its sum by w for each layer, from the last on; and that by x."""
    calls: list[tuple[Instruction, ...]] = []

    def call(body: Computation, operands: tuple[Instruction, ...], number: int, is_gradient: bool) -> Instruction:
        made = call_of_body(b.call(body, *operands), body, str(number % numbers), is_gradient)
        b.instructions[-1] = made
        return made

    y = x
    for number in range(layers):
        calls.append((y, w))
        y = b.get_tuple_element(call(function(), (y, w), number, False), 0)
    found = [y]
    upstream = y
    for number in reversed(range(layers)):
        made = call(gradient(), (*calls[number], upstream), number if paired else number + layers, True)
        upstream = b.get_tuple_element(made, 0)
        found.append(b.get_tuple_element(made, 1))
    return [*found, upstream]


def count(module: Module, opcode: str) -> int:
    return sum(i.opcode == opcode for computation in module.computations() for i in computation.instructions)


def test_a_gradient_reads_what_its_function_has_computed() -> None:
    for paired, exponentials in ((True, 1), (False, 2)):
        plain = module(paired=paired)
        names: list[str] = []
        prepared = run_pipelines(plain, verify=True, listener=lambda name, _, heard=names: heard.append(name))
        assert names.count("fuse") == (2 if paired else 3)  # once for each body, and for the module itself
        assert count(prepared, "exponential") == exponentials
        assert not any(outlined_call(i) for i in prepared.entry.instructions)
        for found, expected in zip(evaluate(prepared, VALUES), evaluate(plain, VALUES), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_calls_share_code_and_run_as_if_inlined() -> None:
    plain = module(layers=4)
    sizes = []
    for each in (plain, inline_calls(plain)):
        executable = compile_module(each, ["variable"] * 2, {}, verify=True)
        program = executable.program
        buffers = [DeviceBuffer(program.variables[number].shape) for number in range(2)]
        for buffer, value in zip(buffers, VALUES, strict=True):
            buffer.write(value)
        for found, expected in zip(executable.run(1, [], buffers), evaluate(plain, VALUES), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        bodies = {compute_set.of_body or compute_set for compute_set in program.compute_sets}
        sizes.append((len(bodies), int(estimate(program, target("ipu2")).tiles.fixed["code"].max())))
    assert sizes[0] < sizes[1] and sizes[0][1] < sizes[1][1]


@pytest.mark.parametrize("accumulation", [Accumulation(3), Accumulation(2, replicas=2, reduction="mean")])
def test_micro_batches_share_bodies(accumulation: Accumulation) -> None:
    roles = ["feed", "variable"]
    rows = np.random.default_rng(2).normal(size=(accumulation.micro_batches * 4, 4)).astype(np.float32)
    gradients = [sum(evaluate(module(), [x, VALUES[1]])[1:3]) for x in np.split(rows, accumulation.micro_batches)]
    count_of_mean = accumulation.steps if accumulation.reduction == "mean" else 1
    expected = VALUES[1] - RATE * sum(gradients) / count_of_mean
    for numbers, hidden in ((2, False), (1, False), (2, True)):
        repeated = repeat(training_step(numbers, hidden), roles, accumulation)
        # Calls are inlined if they cannot be told apart, or if bodies hide that an update depends on no batch.
        shared = numbers == 2 and not hidden
        assert has_outlined_calls(repeated.module) == shared
        executable = compile_module(repeated.module, repeated.roles, {}, verify=True)
        assert any(each.of_body for each in executable.program.compute_sets) == shared
        (w,) = buffers = [DeviceBuffer(executable.program.variables[1].shape)]
        w.write(VALUES[1])
        executable.run(1, [RowFeed(rows)], buffers)
        np.testing.assert_allclose(w.read(), expected, rtol=1e-4, atol=1e-5)


def test_replicas_of_a_function_are_cut_with_calls_inlined() -> None:
    replicated = replicate(module(), ["variable"] * 2, 2)
    assert not has_outlined_calls(replicated.module) and not replicated.rows
    for found, expected in zip(evaluate(replicated.module, VALUES), evaluate(module(), VALUES), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
