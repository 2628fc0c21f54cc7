"""Recomputed activations: the same bits, with fewer bytes at the peak."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import prepare
from engine.compiler_options import CompilerOptions
from engine.evaluate import evaluate
from engine.ir import DotDimensionNumbers, Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.ir.device_operations import CHECKPOINT
from engine.ir.op_names import RECOMPUTED
from engine.ir.shape import TupleShape
from engine.passes.liveness import peak_liveness
from tests.passes.checking import arguments_for, assert_same_bits
from tests.profile.programs import named

BATCH, WIDTH, LAYERS = 64, 16, 16


def backpropagated(b: Builder, x: Instruction, weights: list[Instruction], marked: int | None) -> list[Instruction]:
    """The gradients of sum(tanh(... tanh(x w) ...)**2) by the weights."""
    shape = (BATCH, WIDTH)
    kept = [x]
    for number, w in enumerate(weights):
        product = named(b.dot(kept[-1], w), f"model/dense_{number}/MatMul")
        kept.append(named(b.elementwise("tanh", product), f"model/dense_{number}/Tanh"))
        if number == marked:
            kept[-1].attributes["frontend_attributes"] = {CHECKPOINT: "true"}
    gradient = named(b.multiply(b.splat(2.0, shape), kept[-1]), "gradient_tape/loss/Mul")
    found = []
    for number in reversed(range(len(weights))):
        y, layer = kept[number + 1], f"gradient_tape/model/dense_{number}"
        square = named(b.multiply(y, y), f"{layer}/TanhGrad")
        slope = named(b.subtract(b.splat(1.0, shape), square), f"{layer}/TanhGrad")
        inner = named(b.multiply(gradient, slope), f"{layer}/TanhGrad")
        found.append(named(b.dot(kept[number], inner, DotDimensionNumbers((0,), (0,))), f"{layer}/MatMul/MatMul_1"))
        back = b.dot(inner, weights[number], DotDimensionNumbers((1,), (1,)))
        gradient = named(back, f"{layer}/MatMul/MatMul")
    return found[::-1]


def step(marked: int | None, elsewhere: int = 0) -> Module:
    """One step of gradient descent; `marked` is the layer whose result is a checkpoint.

    A product of `elsewhere` rows and columns is live when no activation is.
    """
    b = Builder("step")
    x = b.parameter("f32", (BATCH, WIDTH))
    weights = [b.parameter("f32", (WIDTH, WIDTH)) for _ in range(LAYERS)]
    gradients = backpropagated(b, x, weights, marked)
    pairs = zip(weights, gradients, strict=True)
    new = [named(b.subtract(w, g), f"sgd/AssignSubVariableOp_{k}") for k, (w, g) in enumerate(pairs)]
    if elsewhere:
        rows = b.parameter("f32", (elsewhere, WIDTH))
        square = named(b.dot(rows, rows, DotDimensionNumbers((1,), (1,))), "model/square/MatMul")
        new.append(named(b.dot(square, rows), "model/product/MatMul"))
    return b.module(b.tuple(*new), aliases={1 + k: k for k in range(LAYERS)})


def both(module: Module) -> tuple[Module, Module]:
    """The module prepared without and with recomputation; both give the same bits."""
    plain, again = (prepare(module, True, options=CompilerOptions(recompute=each)) for each in (False, True))
    arguments = arguments_for(module, special=False)
    for one, other in zip(evaluate(plain, arguments), evaluate(again, arguments), strict=True):
        assert_same_bits(np.asarray(one), np.asarray(other))
    return plain, again


def recomputed_layers(module: Module) -> set[str]:
    parts = [i.op_name.split("/") for c in module.computations() for i in c.instructions]
    return {each[2] for each in parts if each[0] == RECOMPUTED and len(each) > 2}


@pytest.mark.parametrize(("marked", "layers"), [(None, None), (3, {0, 1, 2}), (5, {0, 1, 2, 3, 4})])
def test_a_step(marked: int | None, layers: set[int] | None) -> None:
    plain, again = both(step(marked))
    assert not recomputed_layers(plain)
    found = recomputed_layers(again)
    if layers is None:
        assert 2 < len(found) < LAYERS
    else:
        assert found == {f"dense_{number}" for number in layers}
    saved = peak_liveness(plain.entry) - peak_liveness(again.entry)
    assert saved > BATCH * WIDTH * 4 * (2 if layers is None else len(layers) // 2)


def test_a_peak_that_has_no_activations_stays() -> None:
    assert not recomputed_layers(both(step(None, elsewhere=512))[1])
    assert recomputed_layers(both(step(3, elsewhere=512))[1]), "checkpoints still count"


def test_a_loop_over_micro_batches() -> None:
    body = Builder("body")
    shapes = [Shape("s32", ()), Shape("f32", (BATCH, WIDTH)), *[Shape("f32", (WIDTH, WIDTH))] * (2 * LAYERS)]
    state = body.parameter_of(TupleShape(tuple(shapes)))
    number, x, *rest = (body.get_tuple_element(state, k) for k in range(len(shapes)))
    gradients = backpropagated(body, body.elementwise("sine", x), rest[:LAYERS], None)
    sums = [body.add(total, each) for total, each in zip(rest[LAYERS:], gradients, strict=True)]
    one = body.add(number, body.constant(1, "s32"))
    iteration = body.build(body.tuple(one, x, *rest[:LAYERS], *sums))
    condition = Builder("condition")
    count = condition.get_tuple_element(condition.parameter_of(state.shape), 0)
    more = condition.build(condition.compare(count, condition.constant(3, "s32"), "LT"))
    b = Builder("loop")
    x, *weights = [b.parameter("f32", shape.dimensions) for shape in shapes[1 : 2 + LAYERS]]
    zeros = [b.splat(0.0, (WIDTH, WIDTH)) for _ in weights]
    initial = b.tuple(b.constant(0, "s32"), x, *weights, *zeros)
    loop = b.instruction("while", state.shape, (initial,), called=(iteration, more))
    results = [b.get_tuple_element(loop, 2 + LAYERS + k) for k in range(LAYERS)]
    plain, again = both(b.module(b.tuple(*results)))
    assert 2 < len(recomputed_layers(again)) < LAYERS and not recomputed_layers(plain)


def test_parts_of_pipelines_are_left_alone() -> None:
    module = step(3)
    for instruction in module.entry.instructions:
        if instruction.op_name:
            instruction.op_name = f"ipu_stage_0/{instruction.op_name}"
    assert not recomputed_layers(both(module)[1])
