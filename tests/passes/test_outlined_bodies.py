"""Outlined bodies: prepared once, a function together with its gradient, whose results are those of the definitions."""

from __future__ import annotations

import numpy as np

from engine.evaluate import evaluate
from engine.ir import Computation, Instruction, Module
from engine.ir.builder import Builder
from engine.ir.outlining import call_of_body, outlined_call
from engine.passes.pass_list import run_pipelines

SIZE = 4


def function(scale: float) -> Computation:
    """exp(x * w * scale), and a result that is a parameter."""
    b = Builder("function")
    x, w = b.parameter("f32", (SIZE,)), b.parameter("f32", (SIZE,))
    y = b.elementwise("exponential", b.multiply(b.multiply(x, w), b.splat(scale, (SIZE,))))
    return b.build(b.tuple(y, x))


def gradient(scale: float) -> Computation:
    """Its gradients by x and w, for the upstream gradient, which is its last parameter."""
    b = Builder("gradient")
    x, w, dy = (b.parameter("f32", (SIZE,)) for _ in range(3))
    factor = b.splat(scale, (SIZE,))
    y = b.elementwise("exponential", b.multiply(b.multiply(x, w), factor))
    dx = b.multiply(b.multiply(dy, y), factor)
    return b.build(b.tuple(b.multiply(dx, w), b.multiply(dx, x)))


def module(paired: bool) -> Module:
    """Two functions one after the other, and their gradients, with bodies of their own."""
    b = Builder()
    x, w = b.parameter("f32", (SIZE,)), b.parameter("f32", (SIZE,))
    calls: list[tuple[Instruction, ...]] = []

    def call(body: Computation, operands: tuple[Instruction, ...], number: int, is_gradient: bool) -> Instruction:
        made = call_of_body(b.call(body, *operands), body, str(number), is_gradient)
        made.name += "!"
        b.instructions[-1] = made
        return made

    y = x
    for number in range(2):
        calls.append((y, w))
        y = b.get_tuple_element(call(function(0.5), (y, w), number, False), 0)
    results = [y]
    upstream = y
    for number in reversed(range(2)):
        made = call(gradient(0.5), (*calls[number], upstream), number if paired else number + 10, True)
        upstream, by_w = b.get_tuple_element(made, 0), b.get_tuple_element(made, 1)
        results.append(by_w)
    return b.module(b.tuple(*results, upstream))


def count(module: Module, opcode: str) -> int:
    return sum(i.opcode == opcode for computation in module.computations() for i in computation.instructions)


def test_a_gradient_reads_what_its_function_has_computed() -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=SIZE).astype(np.float32) for _ in range(2)]
    for paired, exponentials in ((True, 1), (False, 2)):
        plain = module(paired)
        names: list[str] = []
        prepared = run_pipelines(plain, verify=True, listener=lambda name, _, heard=names: heard.append(name))
        assert names.count("fuse") == (2 if paired else 3)  # once for each body, and for the module itself
        assert count(prepared, "exponential") == exponentials
        assert not any(outlined_call(i) for i in prepared.entry.instructions)
        for found, expected in zip(evaluate(prepared, values), evaluate(plain, values), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
