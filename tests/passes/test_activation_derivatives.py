"""Derivatives of activations are computed where the activations are, unless more arrays would have to be kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.compile import prepare
from engine.evaluate import evaluate
from engine.ir import Computation, DotDimensionNumbers, Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes import activation_derivatives
from engine.passes.factored_derivatives import factored_derivatives
from engine.passes.fusible import is_elementwise
from tests.engine.running import arguments_for, check

ROWS, COLUMNS = 9, 37
SHAPE = (ROWS, COLUMNS)
Pair = tuple[Instruction, Callable[[Instruction], Instruction]]
"""An activation, and its gradient as a function of the gradient that enters it."""


def gelu(b: Builder, x: Instruction) -> Pair:
    kind = x.array_shape.element_type
    # Numbers that 16-bit floats have, too.
    half, root, slope = (b.splat(number, SHAPE, kind) for number in (0.5, -0.70703125, -1.125))
    halved, u = b.multiply(half, x), b.multiply(x, root)
    is_half = kind in ("f16", "bf16")  # frameworks compute their erfc in f32
    function = b.elementwise("erfc", b.convert(u, "f32") if is_half else u)
    function = b.convert(function, kind) if is_half else function

    def gradient(dy: Instruction) -> Instruction:
        bell = b.elementwise("exponential", b.elementwise("negate", b.multiply(u, u)))
        inner = b.multiply(b.multiply(b.multiply(dy, halved), slope), bell)
        return b.add(b.multiply(half, b.multiply(dy, function)), b.multiply(inner, root))

    return b.multiply(halved, function), gradient


def silu(b: Builder, x: Instruction) -> Pair:
    s, one = b.elementwise("logistic", x), b.splat(1.0, SHAPE)
    return b.multiply(x, s), lambda dy: b.multiply(dy, b.multiply(s, b.add(one, b.multiply(x, b.subtract(one, s)))))


def tanh(b: Builder, x: Instruction) -> Pair:
    y = b.elementwise("tanh", x)
    return y, lambda dy: b.multiply(dy, b.subtract(b.splat(1.0, SHAPE), b.multiply(y, y)))


def step(activation: Callable[[Builder, Instruction], Pair], reads_input: bool = False) -> Module:
    """Two dense layers with an activation between, and both kernels' gradients of half the sum of squares."""
    b = Builder("step")
    rows, kernel, bias, last = (b.parameter("f32", s) for s in ((ROWS, 5), (5, COLUMNS), (COLUMNS,), (COLUMNS, 4)))
    x = b.add(b.dot(rows, kernel), b.broadcast(bias, SHAPE, (1,)))
    y, gradient = activation(b, x)
    loss = b.dot(y, last)
    dx = gradient(b.dot(loss, last, DotDimensionNumbers((1,), (1,))))
    if reads_input:
        dx = b.add(dx, b.multiply(x, b.broadcast(b.reduce(loss, b.constant(0.0), (1,)), SHAPE, (0,))))
    total = b.reduce(dx, b.constant(0.0), (0,))
    return b.module(
        b.tuple(
            b.dot(y, loss, DotDimensionNumbers((0,), (0,))), b.dot(rows, dx, DotDimensionNumbers((0,), (0,))), total
        )
    )


def fusions(module: Module) -> list[Computation]:
    return [i.called[0] for i in module.entry.instructions if i.opcode == "fusion"]


def opcodes(computation: Computation) -> set[str]:
    return {i.opcode for i in computation.instructions}


@pytest.mark.parametrize(("activation", "function"), [(gelu, "erfc"), (silu, "logistic")])
def test_the_forward_pass_stores_the_derivative(activation: Callable[..., Pair], function: str) -> None:
    module = step(activation)
    check(module)
    found = [opcodes(each) for each in fusions(prepare(module, verify=True))]
    assert [function in each for each in found].count(True) == 1
    assert {"parameter", "multiply", "reduce", "constant", "tuple"} in found, found


@pytest.mark.parametrize(("activation", "reads_input"), [(tanh, False), (gelu, True), (silu, True)])
def test_an_input_or_result_that_is_kept_anyway_is_read(activation: Callable[..., Pair], reads_input: bool) -> None:
    module = step(activation, reads_input)
    assert factored_derivatives(module) is module
    backward = fusions(prepare(module, verify=True))[-1]
    assert opcodes(backward) & {"exponential", "subtract"}


def test_factoring_keeps_the_values() -> None:
    module = step(gelu)
    factored = factored_derivatives(module)
    verify(factored)
    assert factored is not module
    arguments = arguments_for(module)
    for new, old in zip(evaluate(factored, arguments), evaluate(module, arguments), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)


def gradient_of_larger(kind: str) -> Module:
    """The gradient of gelu(x), for a gradient that is gelu(x), or w where w is larger."""
    b = Builder("gradient")
    x, w = b.parameter(kind, SHAPE), b.parameter(kind, SHAPE)
    y, gradient = gelu(b, x)
    return b.module(gradient(b.elementwise("maximum", y, w)))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_derivatives_of_halves_are_rounded_once(kind: str) -> None:
    module = gradient_of_larger(kind)
    factored = factored_derivatives(module)
    verify(factored)
    product = factored.entry.root
    assert [each.opcode for each in (product, product.operands[1])] == ["multiply", "convert"]
    x = np.random.default_rng(5).normal(0, 1.5, SHAPE).astype(Shape(kind).dtype)
    w = np.full(SHAPE, 16, x.dtype)
    check(factored, [x, w], tolerance={"f16": 1e-3, "bf16": 8e-3}[kind])
    (exact,) = evaluate(gradient_of_larger("f64"), [x.astype(np.float64), w.astype(np.float64)])
    errors = [np.std(evaluate(each, [x, w])[0].astype(np.float64) - exact) for each in (factored, module)]
    assert errors[0] < errors[1], errors


def scaled_twice(kind: str, steps: int) -> Module:
    """A sum of two products with one factor; the other factor of one is squared `steps` times, each time read twice."""
    b = Builder()
    scale, x, other = (b.parameter(kind, SHAPE) for _ in range(3))
    power = x
    for _ in range(steps):
        power = b.add(b.multiply(power, power), x)
    return b.module(b.add(b.multiply(scale, power), b.multiply(scale, other)))


def test_a_factor_that_is_no_derivative_is_left_as_it_is() -> None:
    """The pass ends soon, though many paths share operands."""
    module = scaled_twice("bf16", 40)
    assert len(factored_derivatives(module).entry.instructions) == len(module.entry.instructions)


@pytest.mark.parametrize("limited", [False, True])
def test_derivatives_that_a_half_cannot_hold_are_not_stored(limited: bool) -> None:
    """The derivative of exp(x) tanh(8 x), times a small gradient too, may be infinite where the value is finite.

    Softplus and mish have the exponential of an input that is `limited`.
    """

    def steep(kind: str) -> Module:
        b = Builder()
        x, w, eight = b.parameter(kind, SHAPE), b.parameter(kind, SHAPE), b.splat(8.0, SHAPE, kind)
        angle = b.multiply(eight, x)
        power = b.elementwise("minimum", x, b.splat(10.0, SHAPE, kind)) if limited else x
        grown, wave = b.elementwise("exponential", power), b.elementwise("tanh", angle)
        dy = b.elementwise("maximum", b.multiply(grown, wave), w)
        rest = b.subtract(b.splat(1.0, SHAPE, kind), b.multiply(wave, wave))
        slope = b.multiply(b.multiply(b.multiply(dy, grown), rest), eight)
        return b.module(b.add(b.multiply(b.multiply(dy, wave), grown), slope))

    roots = [factored_derivatives(steep(kind)).entry.root.opcode for kind in ("f16", "bf16", "f32")]
    assert roots == ["add", "multiply", "multiply"]


def test_each_instruction_of_a_recurrence_is_tested_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    tested: list[Instruction] = []

    def counted(instruction: Instruction) -> bool:
        tested.append(instruction)
        return is_elementwise(instruction)

    monkeypatch.setattr(activation_derivatives, "is_elementwise", counted)
    b = Builder("recurrence")
    # All steps read one bias.
    bias, one = b.broadcast(b.parameter("f32", (COLUMNS,)), SHAPE, (1,)), b.splat(1.0, SHAPE)
    states = [b.parameter("f32", SHAPE)]
    for _ in range(40):
        states.append(b.elementwise("tanh", b.add(states[-1], bias)))
    gradient = b.parameter("f32", SHAPE)
    for state in reversed(states[1:]):
        gradient = b.multiply(gradient, b.subtract(one, b.multiply(state, state)))
    computation = b.module(gradient).entry
    activation_derivatives.ActivationDerivatives(computation).kept()
    assert len(computation.instructions) // 2 < len(tested) < 3 * len(computation.instructions)
