"""Division into forward and backward parts, where loops and called functions hide it."""

from __future__ import annotations

import pytest

from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.ir.op_names import in_gradient_scope
from engine.ir.properties import is_repeatable
from engine.partition.crossings import plan_parts
from engine.partition.marks import cut
from engine.partition.repeat import BEFORE_STAGES
from engine.partition.stages import Placement, is_forward_of_a_stage, place
from engine.passes.run_passes import run_passes
from tests.partition.stage_steps import scope
from tests.partition.steps import mark

TIME, WIDTH = 3, 4
ROLES = ["feed", "variable", "variable"]


@pytest.mark.parametrize(
    ("op_name", "forward", "gradient"),
    [
        ("model/ipu_stage_0/lstm/while", True, False),
        ("gradient_tape/model/ipu_stage_0/lstm/while/model/ipu_stage_0/lstm/while_grad", False, True),
        ("model/ipu_stage_1/penalty/gradient_tape/MatMul", True, True),
        ("PartitionedCall/gradients/while_grad", False, True),
        ("model/dense/MatMul", False, False),
    ],
)
def test_names(op_name: str, forward: bool, gradient: bool) -> None:
    assert is_forward_of_a_stage(op_name) is forward
    assert in_gradient_scope(op_name) is gradient


def loop(b: Builder, state: Instruction, values: Instruction, w: Instruction, draws: bool = False) -> Instruction:
    """A loop over time as TensorFlow writes it, with a state, a list of arrays (a tuple), and a variable."""
    initial = b.tuple(b.constant(0, "s32"), state, b.tuple(values, b.constant(TIME, "s32")), w)
    body = Builder("body")
    given = body.parameter_of(initial.shape)
    count, value, kept, weights = (body.get_tuple_element(given, k) for k in range(4))
    new = body.elementwise("tanh", body.multiply(value, weights))
    if draws:
        bounds = body.constant(0.0), body.constant(1.0)
        new = body.add(new, body.instruction("rng", new.shape, bounds, distribution="rng_uniform"))
    array = body.get_tuple_element(kept, 0)
    row = body.reshape(new, (1, WIDTH))
    array = body.instruction("dynamic-update-slice", array.shape, (array, row, count, body.constant(0, "s32")))
    pair = body.tuple(array, body.get_tuple_element(kept, 1))
    root = body.tuple(body.add(count, body.constant(1, "s32")), new, pair, weights)
    more = Builder("more")
    test = more.compare(more.get_tuple_element(more.parameter_of(initial.shape), 0), more.constant(TIME, "s32"), "LT")
    return b.instruction("while", initial.shape, (initial,), (body.build(root), more.build(test)))


def step(gradient_scope: str, draws: bool = False) -> Module:
    """A loop in stage 0, a product in stage 1; the loop's list is made in the scope of gradients, which read it."""
    b = Builder("step")
    x, w, v = b.parameter("f32", (WIDTH,)), b.parameter("f32", (WIDTH,)), b.parameter("f32", (WIDTH,))
    with scope(b, "gradient_tape/ipu_stage_0/lstm/while/accumulator"):
        empty = b.splat(0.0, (TIME, WIDTH))
    with scope(b, "ipu_stage_0/lstm"):
        forward = loop(b, x, empty, w, draws)
        value, values = b.get_tuple_element(forward, 1), b.get_tuple_element(forward, 2)
    with scope(b, "ipu_stage_1/dense"):
        output = b.multiply(value, v)
    with scope(b, "gradient_tape/ipu_stage_1/dense"):
        of_v, error = b.multiply(output, value), b.multiply(output, v)
    with scope(b, gradient_scope):
        backward = loop(b, error, empty, w)
        total = b.reduce(b.get_tuple_element(values, 0), b.constant(0.0), (0,))
        of_w = b.multiply(b.get_tuple_element(backward, 1), total)
    news = [b.subtract(old, mark(b, gradient)) for old, gradient in ((w, of_w), (v, of_v))]
    return b.module(b.tuple(output, *news), {1: 1, 2: 2})


def placed(module: Module) -> tuple[Module, Placement]:
    module = run_passes(module, BEFORE_STAGES, verify=True)
    return module, place(module, ROLES, cut(module, ROLES, (), {}), 2)


@pytest.mark.parametrize("scope_name", ["gradient_tape/ipu_stage_0/lstm/while_grad", "PartitionedCall/gradients/while"])
def test_loops_are_in_the_stages_of_their_layers(scope_name: str) -> None:
    """The backward pass may be a call of a function, which is in no stage's scope."""
    module, placement = placed(step(scope_name))
    loops = [placement.position[i] for i in module.entry.instructions if i.opcode == "while"]
    assert loops == [0, 3]
    plans = plan_parts(module, ROLES, cut(module, ROLES, (), {}), placement)
    arrays = [value.array_shape.dimensions for value in plans[0].crossings]
    assert sorted(arrays) == [(TIME, WIDTH), (WIDTH,)], "the state and the list, not the variable"
    assert {p["parameter_number"] for p in plans[3].shared} == {1}


@pytest.mark.parametrize("draws", [False, True])
def test_loops_that_draw_are_not_computed_again(draws: bool) -> None:
    module, placement = placed(step("gradient_tape/ipu_stage_0/lstm/while_grad", draws))
    first = next(i for i in module.entry.instructions if i.opcode == "while")
    assert is_repeatable(first) is not draws
    plans = plan_parts(module, ROLES, cut(module, ROLES, (), {}), placement, recompute=True)
    assert (first in plans[3].copied) is not draws
