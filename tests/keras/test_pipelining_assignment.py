"""Setting, getting and resetting assignments; everything refused; the summary."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ipu.ipu_strategy import IPUStrategy
from keras_ext.extensions import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    PipelineStage,
    SequentialLayerPipelineStageAssignment,
)
from tests.keras.helpers import FEATURES, Kit, data
from tests.keras.pipelines import mlp, set_stages


@pytest.fixture
def sequential(kit: Kit) -> Any:
    with IPUStrategy().scope():
        return mlp(kit)


@pytest.fixture
def functional(kit: Kit) -> Any:
    """A model with two layers whose outputs a third adds."""
    layers = kit.keras.layers
    with IPUStrategy().scope():
        inputs = kit.keras.Input((FEATURES,), name="features")
        first = layers.Dense(4, name="first")(inputs)
        second = layers.Dense(4, name="second")(first)
        return kit.keras.Model(inputs, layers.Add(name="sum")([first, second]), name="network")


def numbers(model: Any) -> list[Any]:
    return [assignment.pipeline_stage for assignment in model.get_pipeline_stage_assignment()]


def test_integers_for_a_sequential_model(sequential: Any) -> None:
    assert numbers(sequential) == [None] * 4
    sequential.set_pipeline_stage_assignment([0, 0, 1, 2])
    assert numbers(sequential) == [0, 0, 1, 2]
    assert all(type(a) is SequentialLayerPipelineStageAssignment for a in sequential.get_pipeline_stage_assignment())


def test_what_is_returned_is_a_copy(sequential: Any) -> None:
    sequential.set_pipeline_stage_assignment([0, 0, 1, 1])
    sequential.get_pipeline_stage_assignment()[3].pipeline_stage = 7
    assert numbers(sequential) == [0, 0, 1, 1]


def test_an_assignment_of_a_nested_model_is_that_of_its_layers(sequential: Any) -> None:
    layers = sequential.get_pipeline_stage_assignment()
    nested = NestedModelPipelineStageAssignment(sequential, layers)
    assert nested.nested_model is nested.layer is sequential and nested.pipeline_stage is None
    nested.pipeline_stage = 2
    assert {layer.pipeline_stage for layer in layers} == {nested.pipeline_stage} == {2}
    layers[0].pipeline_stage = 1
    assert nested.pipeline_stage is None and sequential.name in repr(nested)


def test_objects_for_all_kinds(kit: Kit, sequential: Any, functional: Any) -> None:
    set_stages(sequential, [0, 1, 1, 2])
    assert numbers(sequential) == [0, 1, 1, 2]
    set_stages(functional, [0, 1, 1])
    assert numbers(functional) == [0, 1, 1]
    functional.set_pipeline_stage_assignment(tuple(functional.get_pipeline_stage_assignment()))
    made = [
        FunctionalLayerPipelineStageAssignment(a.layer, a.node_index, 0)
        for a in functional.get_pipeline_stage_assignment()
    ]
    functional.set_pipeline_stage_assignment(made)
    assert numbers(functional) == [0, 0, 0]


@pytest.mark.parametrize("way", ["reset", "none"])
def test_reset_also_outweighs_scopes(kit: Kit, way: str) -> None:
    with IPUStrategy().scope():
        inputs = kit.keras.Input((FEATURES,))
        with PipelineStage(0):
            x = kit.keras.layers.Dense(2)(inputs)
        with PipelineStage(1):
            x = kit.keras.layers.Dense(2)(x)
        model = kit.keras.Model(inputs, x)
        model.compile("sgd", "mse")
    assert numbers(model) == [0, 1]
    if way == "reset":
        model.reset_pipeline_stage_assignment()
    else:
        model.set_pipeline_stage_assignment(None)
    assert numbers(model) == [None, None]
    features, _ = data()
    model.fit(features, features[:, :2], verbose=0)
    with pytest.raises(RuntimeError, match="has run as a pipeline"):
        model.get_pipeline_schedule()


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([1, 1, 1, 1], "0, the first layer's. Received: 1"),
        ([0, 0, 2, 2], "0 or 1, after 0. Received: 2"),
        ([0, 1, 0, 1], "1 or 2, after 1. Received: 0"),
        ([0, 0, -1, 1], "integer of at least 0. Received: -1"),
        ([0, 0, 1], "4 in all. Received: 3"),
        ([], "4 in all. Received: 0"),
        ([0, 0, 1, None], "SequentialLayerPipelineStageAssignment, or all to be integers"),
        ([0, 0, 1, 1.0], "SequentialLayerPipelineStageAssignment, or all to be integers"),
        ([False, 0, 1, 1], "SequentialLayerPipelineStageAssignment, or all to be integers"),
        ("0011", "to be a list. Received: '0011'"),
        ({0: 1}, "to be a list"),
    ],
)
def test_sequential_assignments_refused(sequential: Any, stages: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        sequential.set_pipeline_stage_assignment(stages)
    assert message in str(error.value)
    assert numbers(sequential) == [None] * 4


def test_functional_assignments_refused(functional: Any) -> None:
    first, second, total = functional.get_pipeline_stage_assignment()
    with pytest.raises(ValueError, match="Received: none for call 0 of layer 'first'"):
        functional.set_pipeline_stage_assignment([first, second, total])
    for assignment, stage in zip((first, second, total), (1, 1, 0), strict=True):
        assignment.pipeline_stage = stage
    with pytest.raises(ValueError, match="layer 'sum' in stage 0, which takes the output of 'first' in stage 1"):
        functional.set_pipeline_stage_assignment([first, second, total])
    total.pipeline_stage = 1
    with pytest.raises(ValueError, match="at 0 call 0 of layer 'first'. Received: call 0 of 'second'"):
        functional.set_pipeline_stage_assignment([second, first, total])
    with pytest.raises(ValueError, match="3 in all. Received: 2"):
        functional.set_pipeline_stage_assignment([first, second])
    wrong = ModelLayerPipelineStageAssignment(total.layer, 0, 1)
    with pytest.raises(ValueError, match="instances of FunctionalLayerPipelineStageAssignment. Received: ModelLayer"):
        functional.set_pipeline_stage_assignment([first, second, wrong])
    with pytest.raises(ValueError, match="instances of FunctionalLayerPipelineStageAssignment. Received: 0"):
        functional.set_pipeline_stage_assignment([0, 0, 1])
    other = FunctionalLayerPipelineStageAssignment(total.layer, 1, 1)
    with pytest.raises(ValueError, match="at 2 call 0 of layer 'sum'. Received: call 1 of 'sum'"):
        functional.set_pipeline_stage_assignment([first, second, other])


def test_a_stage_without_layers_is_refused_when_it_runs(functional: Any) -> None:
    set_stages(functional, [0, 2, 2])
    functional.compile("sgd", "mse")
    features, _ = data()
    with pytest.raises(RuntimeError, match="All stages|at least one layer"):
        functional.fit(features, features[:, :4], verbose=0)


def test_a_pipelined_model_with_a_call_of_its_own_is_refused(kit: Kit) -> None:
    class Own(kit.keras.Sequential):  # type: ignore[misc, name-defined]
        def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            return super().call(inputs, training=training, mask=mask)

    with IPUStrategy().scope():
        model = Own([kit.keras.layers.Dense(4), kit.keras.layers.Dense(4)])
        model.compile("sgd", "mse")
    model.set_pipeline_stage_assignment([0, 1])
    features, _ = data()
    with pytest.raises(RuntimeError, match="does not override call"):
        model.predict(features, verbose=0)


@pytest.mark.parametrize("change", ["add", "pop"])
def test_a_sequential_model_that_changes_loses_its_assignment(
    kit: Kit, sequential: Any, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    sequential.set_pipeline_stage_assignment([0, 0, 1, 1])
    with IPUStrategy().scope():
        if change == "add":
            sequential.add(kit.keras.layers.Dense(2))
        else:
            sequential.pop()
    with caplog.at_level(logging.INFO, logger="ipu"):
        assert set(numbers(sequential)) == {None}
    assert "its pipeline stage assignment is dropped" in caplog.text


def test_summary_of_a_sequential_model(sequential: Any) -> None:
    sequential.set_pipeline_stage_assignment([0, 0, 1, 1])
    lines: list[str] = []
    sequential.print_pipeline_stage_assignment_summary(print_fn=lines.append)
    names = [layer.name for layer in sequential.layers]
    rule = "_" * 60
    expected = [f'Model: "{sequential.name}"', rule, f"{'Layer (type)':<30}{'Pipeline Stage':<30}", "=" * 60]
    for name, stage in zip(names, (0, 0, 1, 1), strict=True):
        expected += [f"{name + ' (Dense)':<30}{stage:<30}", rule]
    expected[-1] = "=" * 60
    assert lines[: len(expected)] == expected
    assert lines[len(expected) :] == [
        "Stage 0: 90 parameters (360 bytes), 52 bytes of activations for each sample",
        "Stage 1: 53 parameters (212 bytes), 32 bytes of activations for each sample",
    ]


def test_summary_of_a_functional_model(functional: Any, capsys: pytest.CaptureFixture[str]) -> None:
    functional.print_pipeline_stage_assignment_summary()
    row = "{:<35}{:<36}{:<18}".format
    rule = "_" * 89
    assert capsys.readouterr().out.splitlines() == [
        'Model: "network"',
        rule,
        row("Layer (type) (node index)", "Input Layers", "Pipeline Stage"),
        "=" * 89,
        row("first (Dense) (0)", "features", "None"),
        rule,
        row("second (Dense) (0)", "first", "None"),
        rule,
        row("sum (Add) (0)", "first", "None"),
        row("", "second", ""),
        "=" * 89,
    ]


def test_summary_of_another_width_cuts_its_columns(functional: Any) -> None:
    set_stages(functional, [0, 1, 1])
    lines: list[str] = []
    functional.print_pipeline_stage_assignment_summary(line_length=40, print_fn=lines.append)
    assert lines[2:5] == [
        "Layer (type) (n Input Layers    Pipeline",
        "=" * 40,
        "first (Dense) ( features        0       ",
    ]
    assert all(len(line) == 40 for line in lines[1:10])


def test_summary_of_a_subclass(kit: Kit) -> None:
    """The summary has the form of functional models; stages are known once the model is built."""

    class Shared(kit.keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(name="shared")
            self.dense, self.sum = kit.keras.layers.Dense(3, name="dense"), kit.keras.layers.Add(name="sum")

        def call(self, inputs: Any) -> Any:
            x = self.dense(inputs)
            return self.sum([x, self.dense(x)])

    with IPUStrategy().scope():
        model = Shared()
        with pytest.raises(RuntimeError, match=r"Call build\(\)"):
            model.print_pipeline_stage_assignment_summary()
        model.build((4, 3))
    set_stages(model, [0, 1, 1])
    lines: list[str] = []
    model.print_pipeline_stage_assignment_summary(line_length=70, print_fn=lines.append)
    row = "{:<28}{:<28}{:<14}".format
    assert lines == [
        'Model: "shared"',
        "_" * 70,
        row("Layer (type) (node index)", "Input Layers", "Pipeline Stage"),
        "=" * 70,
        row("dense (Dense) (0)", model.get_pipeline_stage_assignment()[0].inbound_layers.name, "0"),
        "_" * 70,
        row("dense (Dense) (1)", "dense", "1"),
        "_" * 70,
        row("sum (Add) (0)", "dense", "1"),
        row("", "dense", ""),
        "=" * 70,
        "Stage 0: 12 parameters (48 bytes), 48 bytes of activations for each batch",
        "Stage 1: 12 parameters (48 bytes), 96 bytes of activations for each batch",
    ]
