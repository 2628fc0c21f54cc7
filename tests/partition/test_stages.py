"""Instructions are placed in the stages of their scopes, or beside their readers; values that flow back are refused."""

from __future__ import annotations

import pytest

from engine.errors import ConfigurationError
from engine.ir import Module
from engine.ir.builder import Builder
from engine.ir.op_names import stage_in
from engine.partition.crossings import plan_parts
from engine.partition.marks import cut
from engine.partition.repeat import BEFORE
from engine.partition.schedule import Recomputation
from engine.partition.stages import Placement, place
from engine.passes.run_passes import run_passes
from tests.partition.stage_steps import scope, staged_step
from tests.partition.steps import mark

STAGES = 3


def placed(stages: int = STAGES, **options):
    step = staged_step(3, stages, **options)
    module = run_passes(step.module, BEFORE)
    parts = cut(module, step.roles, step.once, {})
    return module, step, parts, place(module, step.roles, parts, stages)


@pytest.mark.parametrize(
    ("op_name", "stage"),
    [
        ("step/ipu_stage_0/dense/MatMul", 0),
        ("step/gradient_tape/model/ipu_stage_12/dense/MatMul", 12),
        ("ipu_stage_1_3/dense/MatMul", 1),
        ("step/ipu_stage_2", 2),
        ("step/my_ipu_stage_2x/dense", None),
        ("step/tipu_stage_2/dense", None),
        ("", None),
    ],
)
def test_scopes(op_name: str, stage: int | None) -> None:
    b = Builder()
    value = b.parameter("f32", (2,))
    value.op_name = op_name
    assert stage_in(value.op_name) == stage


def test_everything_is_in_the_stage_of_its_scope() -> None:
    module, step, parts, placement = placed()
    counted = 0
    for instruction in module.entry.instructions:
        stage = stage_in(instruction.op_name)
        at = placement.position.get(instruction)
        if stage is None or at is None:
            continue
        if instruction.array_shape.element_type != "s32":  # all changes of the seed come first
            backward = "gradient_tape" in instruction.op_name
            assert at == (2 * STAGES - 1 - stage if backward else stage), instruction
            assert placement.stage(at) == stage
            counted += 1
    assert counted > 10 * STAGES


def test_values_only_flow_onwards() -> None:
    module, step, parts, placement = placed(tied=True)
    for instruction, at in placement.position.items():
        assert all(placement.position.get(operand, 0) <= at for operand in instruction.operands)
    after = [i for i in module.entry.instructions if i.opcode == "reduce" and stage_in(i.op_name) is None]
    assert placement.position[after[-1]] == STAGES - 1, "the loss belongs to the last stage"


def test_variables_are_where_they_are_updated() -> None:
    module, step, parts, placement = placed()
    position = {number: placement.position[module.entry.parameters[number]] for number in parts.moving}
    moving = [n for n in parts.moving if module.entry.parameters[n].array_shape.rank == 1]
    assert [position[n] for n in moving] == list(range(STAGES))
    (total,) = step.metrics
    assert position[total] == STAGES - 1
    (seed,) = set(parts.moving) - {*moving, total}
    assert position[seed] == 0


@pytest.mark.parametrize("recompute", ["none", "then_backpropagate"])
def test_each_part_makes_what_others_read(recompute: Recomputation) -> None:
    module, step, parts, placement = placed(tied=True)
    plans = plan_parts(module, step.roles, parts, placement, recompute=recompute)
    made = {value: plan.position for plan in plans for value in plan.crossings}
    for plan in plans:
        assert all(made[value] < plan.position for value in plan.reads)
    assert [mark for plan in plans for mark in plan.marks] and len(plans) == 2 * STAGES
    assert sorted(number for plan in plans for number in plan.states) == sorted(parts.moving)
    for stage in range(STAGES):
        reads = plans[2 * STAGES - 1 - stage].reads
        own = [v for v in reads if placement.position[v] == stage and v.opcode != "parameter"]
        keeps = recompute == "none" or stage == STAGES - 1
        assert bool(own) is keeps, "with recomputation only what enters a stage waits, but in the last one"


def chain(labels: list[str], gradient_labels: list[str], state: tuple[str, str] | None = None) -> Module:
    """y = tanh(tanh(x w)), each operation in a scope; a state is read in one scope and then changed in another."""
    b = Builder("step")
    x, w, v = b.parameter("f32", (4,)), b.parameter("f32", (4,)), b.parameter("f32", (4,))
    value = x
    for label in labels:
        with scope(b, label):
            value = b.elementwise("tanh", b.multiply(value, w))
    news = [v]
    if state:
        with scope(b, state[0]):
            value = b.add(value, v)
        with scope(b, state[1]):
            news = [b.multiply(b.elementwise("sine", value), value)]
    gradient = value
    for label in gradient_labels:
        with scope(b, label):
            gradient = b.multiply(gradient, w)
    new = b.subtract(w, mark(b, gradient))
    return b.module(b.tuple(value, new, *news), {1: 1, 2: 2})


def refused(module: Module, stages: int = 2, sequential: bool = False) -> Placement:
    roles = ["feed", "variable", "variable"]
    module = run_passes(module, BEFORE)
    return place(module, roles, cut(module, roles, (), {}), stages, sequential=sequential, names={2: "my_state"})


GRADIENTS = ["gradient_tape/ipu_stage_1/b", "gradient_tape/ipu_stage_0/a"]


def test_a_chain_in_order_is_accepted() -> None:
    assert set(refused(chain(["ipu_stage_0/a", "ipu_stage_1/b"], GRADIENTS)).position.values()) >= {0, 1, 2, 3}


def test_values_that_flow_back_are_refused_by_name() -> None:
    labels = ["ipu_stage_0/a", "ipu_stage_1/b", "ipu_stage_0/late"]
    with pytest.raises(ConfigurationError, match=r"stage 0 \(step/ipu_stage_0/late/op\).*of stage 1 .*'late'"):
        refused(chain(labels, GRADIENTS))


def test_gradients_that_flow_back_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="gradients from the same and later stages"):
        refused(chain(["ipu_stage_0/a", "ipu_stage_1/b"], GRADIENTS[::-1]))


def test_empty_and_unknown_stages_are_refused() -> None:
    module = chain(["ipu_stage_0/a", "ipu_stage_2/b"], GRADIENTS)
    with pytest.raises(ConfigurationError, match="stages 0 to 1. Received: .*in stage 2"):
        refused(module)
    module = chain(["ipu_stage_0/a", "ipu_stage_1/b"], GRADIENTS)
    with pytest.raises(ConfigurationError, match="All stages in a pipeline.*nothing in stage 2"):
        refused(module, stages=3)


def test_a_state_that_later_stages_change_is_refused_unless_in_turn() -> None:
    labels = ["ipu_stage_0/a"]
    module = chain(labels, GRADIENTS, state=("ipu_stage_0/reads", "ipu_stage_1/changes"))
    with pytest.raises(ConfigurationError, match="'my_state', updated in stage 1.*Sequential"):
        refused(module)
    assert refused(module, sequential=True).position
