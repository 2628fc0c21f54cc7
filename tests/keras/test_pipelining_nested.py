"""Models inside models, of any two kinds, whose layers are in separate stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import PipelineSchedule
from keras_ext.extensions import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelNestedModelPipelineStageAssignment,
    PipelineStage,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from tests.keras.helpers import CLASSES, FEATURES, Kit, data, keras3_only
from tests.keras.pipelines import BATCH, assert_same_bits, train_both, twins

STEPS = 8


def inner_sequential(kit: Kit, with_input: bool = True) -> Any:
    layers = kit.keras.layers
    first = [layers.Input((FEATURES,))] if with_input else []
    made = [*first, layers.Dense(6, "tanh", name="one"), layers.Dense(FEATURES, "relu", name="two")]
    return kit.keras.Sequential(made, name="inner")


def inner_functional(kit: Kit) -> Any:
    """A model with two inputs, two outputs, and a layer that is called twice."""
    layers = kit.keras.layers
    first, second = kit.keras.Input((FEATURES,)), kit.keras.Input((FEATURES,))
    shared = layers.Dense(FEATURES, "tanh", name="shared")
    x = shared(first)
    y = shared(layers.Add(name="sum")([x, second]))
    return kit.keras.Model([first, second], [x, y], name="inner")


def in_sequential(kit: Kit) -> Any:
    layers = kit.keras.layers
    return kit.keras.Sequential(
        [layers.Input((FEATURES,)), layers.Dense(FEATURES), inner_sequential(kit), layers.Dense(CLASSES)]
    )


def in_unbuilt_sequential(kit: Kit) -> Any:
    layers = kit.keras.layers
    return kit.keras.Sequential([layers.Dense(FEATURES), inner_sequential(kit, False), layers.Dense(CLASSES)])


def called_twice(kit: Kit) -> Any:
    """A functional model that calls an inner one twice."""
    inner = inner_sequential(kit)
    inputs = kit.keras.Input((FEATURES,))
    return kit.keras.Model(inputs, kit.keras.layers.Dense(CLASSES, name="head")(inner(inner(inputs))))


def in_functional(kit: Kit) -> Any:
    inputs = kit.keras.Input((FEATURES,))
    first = kit.keras.layers.Dense(FEATURES, name="first")(inputs)
    x, y = inner_functional(kit)([inputs, first])
    return kit.keras.Model(inputs, kit.keras.layers.Dense(CLASSES, name="head")(kit.keras.layers.Add()([x, y])))


def in_subclass(kit: Kit) -> Any:
    class Outer(kit.keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = inner_sequential(kit, False), kit.keras.layers.Dense(CLASSES)

        def call(self, inputs: Any) -> Any:
            return self.head(self.inner(self.inner(inputs)))

    model = Outer()
    model.build((BATCH, FEATURES))
    return model


def deep(kit: Kit) -> Any:
    """A model in a model in a model."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((FEATURES,))
    middle = kit.keras.Model(inputs, layers.Dense(FEATURES, name="after")(inner_sequential(kit)(inputs)), name="middle")
    return kit.keras.Sequential([layers.Input((FEATURES,)), middle, layers.Dense(CLASSES)])


def set_all(assignments: list[Any], stages: list[Any]) -> None:
    """Assigns stages in order; a nested model has a list of stages."""
    assert len(assignments) == len(stages)
    for assignment, stage in zip(assignments, stages, strict=True):
        if isinstance(stage, list):
            set_all(assignment.pipeline_stage_assignments, stage)
        else:
            assignment.pipeline_stage = stage


def read(assignments: list[Any]) -> list[Any]:
    inner = [getattr(assignment, "pipeline_stage_assignments", None) for assignment in assignments]
    return [
        assignment.pipeline_stage if of_inner is None else read(of_inner)
        for assignment, of_inner in zip(assignments, inner, strict=True)
    ]


SPLITS: list[tuple[Any, list[Any], tuple[int, ...]]] = [
    (in_sequential, [0, [1, 2], 3], (0, 1, 2, 3)),
    (in_unbuilt_sequential, [0, [0, 1], 1], (0, 1)),
    (called_twice, [[0, 1], [2, 3], 3], (0, 1, 0, 1)),
    (called_twice, [0, [1, 2], 3], (0, 0, 0, 1)),
    (in_functional, [0, [1, 1, 2], 3, 3], (0, 1, 1, 2)),
    (in_subclass, [[0, 1], [1, 2], 3], (0, 0, 0, 1)),
    (deep, [[[0, 1], 2], 3], (0, 1, 2, 3)),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("build", "stages", "devices"), SPLITS, ids=[f"{b.__name__}-{s}" for b, s, _ in SPLITS])
def test_training_with_layers_of_inner_models_in_stages(
    kit: Kit, build: Any, stages: list[Any], devices: tuple[int, ...]
) -> None:
    models = twins(kit, build, stages, STEPS, assign=set_all)
    assert read(models[1].get_pipeline_stage_assignment()) == stages_in_full(models[1], stages)
    x, y = data(2 * STEPS * BATCH)
    train_both(kit, models, x, y, epochs=1)
    assert_same_bits(models)
    rows = models[1].get_pipeline_schedule("train")
    assert tuple(dict(sorted((row.stage, row.ipu) for row in rows)).values()) == devices
    results = [model.predict(x, batch_size=BATCH, verbose=0) for model in models]
    np.testing.assert_array_equal(*results)


def stages_in_full(model: Any, stages: list[Any]) -> list[Any]:
    """The stages, with a list for each nested model."""
    return [
        [stage] * len(inner) if inner is not None and not isinstance(stage, list) else stage
        for stage, inner in zip(
            stages,
            [getattr(a, "pipeline_stage_assignments", None) for a in model.get_pipeline_stage_assignment()],
            strict=True,
        )
    ]


@pytest.mark.parametrize("schedule", [PipelineSchedule.Interleaved, PipelineSchedule.Sequential])
def test_other_schedules(kit: Kit, schedule: PipelineSchedule) -> None:
    models = twins(kit, deep, [[[0, 1], 2], 3], STEPS, assign=set_all, pipeline_schedule=schedule)
    train_both(kit, models, *data(STEPS * BATCH), epochs=1)
    assert_same_bits(models)


def test_assignments_of_nested_models(kit: Kit) -> None:
    with IPUStrategy().scope():
        functional, sequential, subclass = called_twice(kit), in_sequential(kit), in_subclass(kit)
    first, second, head = functional.get_pipeline_stage_assignment()
    assert type(first) is type(second) is FunctionalNestedModelPipelineStageAssignment
    assert type(head) is FunctionalLayerPipelineStageAssignment
    assert (first.node_index, second.node_index, second.inbound_layers) == (0, 1, first.nested_model)
    assert first.layer is first.nested_model is functional.get_layer("inner")
    inner = first.pipeline_stage_assignments
    assert [(type(a), a.layer.name) for a in inner] == [
        (SequentialLayerPipelineStageAssignment, name) for name in ("one", "two")
    ]
    assert first.pipeline_stage is None
    first.pipeline_stage = 2
    assert [a.pipeline_stage for a in inner] == [2, 2] and first.pipeline_stage == 2
    inner[0].pipeline_stage = 1
    assert first.pipeline_stage is None
    assert "one" in repr(first) and "node_index=0" in repr(first)
    nested = sequential.get_pipeline_stage_assignment()[1]
    assert type(nested) is SequentialNestedModelPipelineStageAssignment and "two" in repr(nested)
    assert type(subclass.get_pipeline_stage_assignment()[1]) is ModelNestedModelPipelineStageAssignment


def test_a_nested_model_can_be_assigned_like_a_layer(kit: Kit) -> None:
    with IPUStrategy().scope():
        functional, sequential = called_twice(kit), in_sequential(kit)
    sequential.set_pipeline_stage_assignment([0, 1, 1])
    assert read(sequential.get_pipeline_stage_assignment()) == [0, [1, 1], 1]
    given = functional.get_pipeline_stage_assignment()
    made = [
        FunctionalLayerPipelineStageAssignment(a.layer, a.node_index, stage)
        for a, stage in zip(given, (0, 1, 1), strict=True)
    ]
    functional.set_pipeline_stage_assignment(made)
    assert read(functional.get_pipeline_stage_assignment()) == [[0, 0], [1, 1], 1]


def test_node_indices_of_inner_calls_count_from_0(kit: Kit) -> None:
    """Calls of the shared layer in other models are not counted."""
    with IPUStrategy().scope():
        inner = inner_functional(kit)
        inner.get_layer("shared")(kit.keras.Input((FEATURES,)))
        inputs = kit.keras.Input((FEATURES,))
        inner([inputs, inputs])  # a call that belongs to no model
        model = kit.keras.Model(inputs, inner([inputs, inputs])[1])
    (assignment,) = model.get_pipeline_stage_assignment()
    assert assignment.node_index == 0
    inside = [(a.layer.name, a.node_index) for a in assignment.pipeline_stage_assignments]
    assert inside == [("shared", 0), ("sum", 0), ("shared", 1)]


def test_scopes_around_layers_of_inner_models(kit: Kit) -> None:
    """The stage of a nested model's call takes precedence over that of its layers, and that over its construction's."""
    layers = kit.keras.layers
    with IPUStrategy().scope():
        with PipelineStage(0):
            first = layers.Dense(FEATURES)
        with PipelineStage(1):
            second = layers.Dense(FEATURES)
        with PipelineStage(2):
            inner = kit.keras.Sequential([layers.Input((FEATURES,)), first, second])
            third = layers.Dense(FEATURES)
        inner.add(layers.Dense(FEATURES))
        inputs = kit.keras.Input((FEATURES,))
        x = inner(inputs)
        with PipelineStage(3):
            x = inner(x)
        model = kit.keras.Model(inputs, third(inner(x)))
    assert read(model.get_pipeline_stage_assignment()) == [[0, 1, 2], [3, 3, 3], [0, 1, 2], 2]
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="in stage 0, which takes the output of 'sequential.*' in stage 3"):
        model.predict(np.zeros((4, FEATURES), np.float32), verbose=0)


def test_functional_inner_models_made_in_scopes(kit: Kit) -> None:
    layers = kit.keras.layers
    with IPUStrategy().scope():
        inputs = kit.keras.Input((FEATURES,))
        with PipelineStage(0):
            x = layers.Dense(FEATURES)(inputs)
        with PipelineStage(1):
            x = layers.Dense(FEATURES)(x)
        inner = kit.keras.Model(inputs, x)
        model = kit.keras.Sequential([layers.Input((FEATURES,)), inner])
        model.compile("sgd", "mse", steps_per_execution=4)
    assert read(model.get_pipeline_stage_assignment()) == [[0, 1]]
    x, _ = data(4 * BATCH)
    assert model.predict(x, batch_size=BATCH, verbose=0).shape == (4 * BATCH, FEATURES)
    assert {row.stage for row in model.get_pipeline_schedule()} == {0, 1}
    model.reset_pipeline_stage_assignment()
    np.testing.assert_allclose(model.predict(x, verbose=0), inner(x), rtol=1e-4, atol=1e-5)


def test_refused(kit: Kit) -> None:
    with IPUStrategy().scope():
        functional, sequential = in_functional(kit), in_sequential(kit)
    given = functional.get_pipeline_stage_assignment()
    for stages, message in (
        ([1, [0, 0, 1], 1, 1], "layer 'sum' in stage 0, which takes the output of 'first' in stage 1"),
        ([0, [0, 1, 2], 1, 2], "in stage 1, which takes the output of 'shared' in stage 2"),
        ([0, [0, None, 1], 1, 1], "none for call 0 of layer 'sum'"),
        ([0, [0, 1, 1.5], 1, 1], "integer of at least 0. Received: 1.5"),
    ):
        set_all(given, stages)
        with pytest.raises(ValueError) as error:
            functional.set_pipeline_stage_assignment(given)
        assert message in str(error.value)
    # The inner model's first input does not come from stage 1, so the layer that takes it may be in an earlier stage.
    set_all(given, [1, [0, 1, 1], 1, 1])
    functional.set_pipeline_stage_assignment(given)
    set_all(given, [0, 0, 1, 1])
    short = FunctionalNestedModelPipelineStageAssignment(given[1].layer, 0, given[1].pipeline_stage_assignments[:2])
    with pytest.raises(ValueError, match="model 'inner', 3 in all. Received: 2"):
        functional.set_pipeline_stage_assignment([given[0], short, *given[2:]])
    wrong = FunctionalNestedModelPipelineStageAssignment(given[0].layer, 0, given[1].pipeline_stage_assignments)
    with pytest.raises(ValueError, match="has no calls in stages of their own"):
        functional.set_pipeline_stage_assignment([wrong, *given[1:]])
    steps = sequential.get_pipeline_stage_assignment()
    for stages, message in (
        ([0, [0, 2], 2], "0 or 1, after 0. Received: 2"),
        ([0, [2, 2], 2], "0 or 1, after 0. Received: 2"),
        ([1, [1, 2], 2], "0, the first layer's. Received: 1"),
        ([0, [1, 2], 1], "2 or 3, after 2. Received: 1"),
    ):
        set_all(steps, stages)
        with pytest.raises(ValueError) as error:
            sequential.set_pipeline_stage_assignment(steps)
        assert message in str(error.value)


def test_a_nested_model_that_does_more_than_its_graph_is_one_layer(kit: Kit) -> None:
    class Own(kit.keras.Sequential):  # type: ignore[misc, name-defined]
        def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            return 2.0 * super().call(inputs, training=training, mask=mask)

    with IPUStrategy().scope():
        inner = Own([kit.keras.layers.Input((FEATURES,)), kit.keras.layers.Dense(FEATURES)])
        model = kit.keras.Sequential([kit.keras.layers.Input((FEATURES,)), inner, kit.keras.layers.Dense(3)])
    assert [type(a) for a in model.get_pipeline_stage_assignment()] == [SequentialLayerPipelineStageAssignment] * 2


@keras3_only
def test_a_layer_inside_opens_no_scopes(kit: Kit) -> None:
    class Inner(kit.keras.layers.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = kit.keras.layers.Dense(FEATURES)

        def call(self, inputs: Any) -> Any:
            with PipelineStage(1):
                return self.dense(inputs)

    class Outer(kit.keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            with PipelineStage(0):
                self.first = kit.keras.layers.Dense(FEATURES)
            self.inner = Inner()

        def call(self, inputs: Any) -> Any:
            return self.inner(self.first(inputs))

    with IPUStrategy().scope():
        model = Outer()
        model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="in the call of Outer itself"):
        model.predict(np.zeros((4, FEATURES), np.float32), verbose=0)


def test_stages_of_nested_models_are_saved(kit: Kit, tmp_path: Path) -> None:
    with IPUStrategy().scope():
        model = called_twice(kit)
        assignments = model.get_pipeline_stage_assignment()
        set_all(assignments, [[0, 1], [1, 1], 2])
        model.set_pipeline_stage_assignment(assignments)
        model.save(tmp_path / "model.keras")
        loaded = kit.keras.models.load_model(tmp_path / "model.keras")
    assert model.get_config()["pipeline_stage_assignment"] == [[0, 0, [0, 1]], [0, 1, 1], [1, 0, 2]]
    assert read(loaded.get_pipeline_stage_assignment()) == [[0, 1], [1, 1], 2]


def test_summary(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = called_twice(kit)
    assignments = model.get_pipeline_stage_assignment()
    set_all(assignments, [[0, 1], [1, 1], 2])
    model.set_pipeline_stage_assignment(assignments)
    lines: list[str] = []
    model.print_pipeline_stage_assignment_summary(print_fn=lines.append)
    row, rule = "{:<35}{:<36}{:<18}".format, "_" * 89
    inner = model.get_layer("inner")
    source = model.layers[0].name
    assert lines[2:] == [
        row("Layer (type) (node index)", "Input Layers", "Pipeline Stage"),
        "=" * 89,
        row("inner (Sequential) (0)", source, "0, 1"),
        "-" * 89,
        'Nested Model: "inner"',
        "-" * 89,
        row("one (Dense) (0)", inner_input(inner), "0"),
        "-" * 89,
        row("two (Dense) (0)", "one", "1"),
        rule,
        row("inner (Sequential) (1)", "inner", "1"),
        rule,
        row("head (Dense) (0)", "inner", "2"),
        "=" * 89,
        "Stage 0: 36 parameters (144 bytes), 24 bytes of activations for each sample",
        "Stage 1: 71 parameters (284 bytes), 64 bytes of activations for each sample",
        "Stage 2: 18 parameters (72 bytes), 12 bytes of activations for each sample",
    ]


def inner_input(inner: Any) -> str:
    return inner.inputs[0]._keras_history[0].name
