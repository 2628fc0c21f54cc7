"""Outlined bodies: prepared and lowered once, a function together with its gradient, equal to the definitions."""

from __future__ import annotations

import numpy as np

from engine.compile import compile_module
from engine.evaluate import evaluate
from engine.ir import Computation, Instruction, Module
from engine.ir.attributes import DotDimensionNumbers
from engine.ir.builder import Builder
from engine.ir.outlining import call_of_body, outlined_call
from engine.passes.inline_calls import inline_calls
from engine.passes.pass_list import run_pipelines
from engine.profile.program_estimate import estimate
from engine.runtime.buffers import DeviceBuffer
from engine.target import target

SHAPE = (4, 4)
VALUES = [np.random.default_rng(k).normal(size=SHAPE).astype(np.float32) for k in range(2)]


def function() -> Computation:
    """exp(x w / 2), and a result that is a parameter."""
    b = Builder("function")
    x, w = b.parameter("f32", SHAPE), b.parameter("f32", SHAPE)
    y = b.elementwise("exponential", b.multiply(b.dot(x, w), b.splat(0.5, SHAPE)))
    return b.build(b.tuple(y, x))


def gradient() -> Computation:
    """Its gradients by x and w, for the upstream gradient, which is its last parameter."""
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
    calls: list[tuple[Instruction, ...]] = []

    def call(body: Computation, operands: tuple[Instruction, ...], number: int, is_gradient: bool) -> Instruction:
        made = call_of_body(b.call(body, *operands), body, str(number), is_gradient)
        b.instructions[-1] = made
        return made

    y = x
    for number in range(layers):
        calls.append((y, w))
        y = b.get_tuple_element(call(function(), (y, w), number, False), 0)
    results = [y]
    upstream = y
    for number in reversed(range(layers)):
        made = call(gradient(), (*calls[number], upstream), number if paired else number + layers, True)
        upstream = b.get_tuple_element(made, 0)
        results.append(b.get_tuple_element(made, 1))
    return b.module(b.tuple(*results, upstream))


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
