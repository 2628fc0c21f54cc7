"""PipelineStages in the `call` of models inside models, and stages given as integers to subclasses of `Model`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy
from keras_ext.extensions import NestedModelPipelineStageAssignment, PipelineStage
from tests.keras.helpers import CLASSES, FEATURES, Kit, data, keras3_only
from tests.keras.pipelines import BATCH, assert_same_bits, loss_of, train_both

STEPS = 12


def opening(kit: Kit, first: int) -> Any:
    """A subclass whose `call` puts its two layers in a stage each."""

    class Inner(kit.keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(name=f"inner_{first}")
            self.one, self.two = (kit.keras.layers.Dense(FEATURES, "tanh") for _ in range(2))

        def call(self, inputs: Any) -> Any:
            with PipelineStage(first):
                x = self.one(inputs)
            with PipelineStage(first + 1):
                return self.two(x)

    return Inner()


def in_subclass(kit: Kit) -> Any:
    """A model of two such subclasses, the second inside a model that opens no stage."""

    class Middle(kit.keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(name="middle")
            self.inner = opening(kit, 1)

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs)

    class Outer(kit.keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.middle, self.head = opening(kit, 0), Middle(), kit.keras.layers.Dense(CLASSES)

        def call(self, inputs: Any) -> Any:
            x = self.middle(self.first(inputs))
            with PipelineStage(2):
                return self.head(x)

    return Outer()


def in_functional(kit: Kit) -> Any:
    inputs = kit.keras.Input((FEATURES,))
    x = opening(kit, 1)(opening(kit, 0)(inputs))
    with PipelineStage(2):
        outputs = kit.keras.layers.Dense(CLASSES)(x)
    return kit.keras.Model(inputs, outputs)


def in_sequential(kit: Kit, with_input: bool = True) -> Any:
    with PipelineStage(2):
        head = kit.keras.layers.Dense(CLASSES)
    inputs = [kit.keras.layers.Input((FEATURES,))] if with_input else []
    return kit.keras.Sequential([*inputs, opening(kit, 0), opening(kit, 1), head])


def in_unbuilt_sequential(kit: Kit) -> Any:
    return in_sequential(kit, with_input=False)


def pair(kit: Kit, build: Any) -> tuple[Any, Any]:
    """The model without stages, and the model with the stages of its scopes."""
    models = []
    for is_pipelined in (False, True):
        kit.keras.utils.set_random_seed(11)
        with IPUStrategy().scope():
            model = build(kit)
            model.compile(kit.keras.optimizers.SGD(0.05), loss_of(kit), steps_per_execution=STEPS)
        if is_pipelined:
            model.set_pipelining_options(STEPS, device_mapping=[0, 1, 2])
        else:
            model.reset_pipeline_stage_assignment()
            model.set_gradient_accumulation_options(STEPS)
        models.append(model)
    return models[0], models[1]


@pytest.mark.sample(1)
@pytest.mark.parametrize("build", [in_subclass, in_functional, in_sequential, in_unbuilt_sequential])
def test_scopes_in_inner_models_count(kit: Kit, build: Any) -> None:
    models = pair(kit, build)
    train_both(kit, models, *data(2 * STEPS * BATCH), epochs=1)
    assert_same_bits(models)
    rows = models[1].get_pipeline_schedule("train")
    assert {row.stage for row in rows if row.kind == "backward"} == {0, 1, 2}
    first, *others = models[1].get_pipeline_stage_assignment()
    assert [each.pipeline_stage for each in first.pipeline_stage_assignments] == [0, 1]
    assert isinstance(first, NestedModelPipelineStageAssignment) and first.is_nested_model
    assert (others[-1].is_nested_model, others[-1].pipeline_stage) == (False, 2)
    x = data(STEPS * BATCH)[0]
    predicted = [model.predict(x, batch_size=BATCH, verbose=0) for model in models]
    np.testing.assert_array_equal(predicted[1], predicted[0])


def test_an_assignment_outweighs_scopes_of_inner_models(kit: Kit) -> None:
    _, model = pair(kit, in_functional)
    assignments = model.get_pipeline_stage_assignment()
    for assignment, stage in zip(assignments, (0, 1, 2), strict=True):
        assignment.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignments)
    model.fit(*data(STEPS * BATCH), batch_size=BATCH, verbose=0)
    assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [0, 1, 2]


def test_a_scope_around_one_that_opens_scopes_is_refused(kit: Kit) -> None:
    with IPUStrategy().scope():
        model, inputs = opening(kit, 0), kit.keras.Input((FEATURES,))
        model(inputs)
        with PipelineStage(0), pytest.raises(RuntimeError, match="do not nest"):
            model(inputs)


@keras3_only
def test_stages_of_inner_models_are_saved(kit: Kit, tmp_path: Path) -> None:
    _, model = pair(kit, in_functional)
    model.fit(*data(STEPS * BATCH), batch_size=BATCH, verbose=0)
    saved = model.get_config()["pipeline_stage_assignment"]
    assert [stage for _, _, stage in saved[0][2]] == [0, 1] and saved[2][2] == 2


class Plain:
    """Makes a subclass of two layers, the first called twice, with an operation between them."""

    def __new__(cls, kit: Kit) -> Any:
        class Model(kit.keras.Model):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                # Layers are counted in the order of the calls, not of the attributes.
                self.head, self.first = kit.keras.layers.Dense(CLASSES), kit.keras.layers.Dense(FEATURES)

            def call(self, inputs: Any) -> Any:
                return self.head(self.first(self.first(inputs)) * 2.0)

        with IPUStrategy().scope():
            model = Model()
            model.compile("sgd", loss_of(kit), steps_per_execution=STEPS)
            model.build((BATCH, FEATURES))
        return model


def test_integers_for_each_layer_and_for_each_call(kit: Kit) -> None:
    model = Plain(kit)
    model.set_pipelining_options(STEPS)
    for given, expected in (
        ([0, 1], [0, 0, 0, 1]),
        ((np.int64(0), 1), [0, 0, 0, 1]),
        ([0, 0, 1, 1], [0, 0, 1, 1]),
    ):
        model.set_pipeline_stage_assignment(given)
        found = model.get_pipeline_stage_assignment()
        assert [each.pipeline_stage for each in found] == expected
        assert not any(each.is_nested_model for each in found)
    model.fit(*data(STEPS * BATCH), batch_size=BATCH, verbose=0)
    assert {row.stage for row in model.get_pipeline_schedule("train")} == {0, 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0], "each layer of model .*, 2 in all, or for each invocation of a layer, 4. Received: 1"),
        ([0, 1, 1], "Received: 3"),
        ([0, 1, 1, 0], "Nearest legal value: 1"),
        ([1, 0], "Nearest legal value: 1"),
        ([0, -1], "at least 0"),
        ([0, 0, 1, True], "ModelLayerPipelineStageAssignment, or all to be integers"),
        ([0, 0, 1, 1.0], "ModelLayerPipelineStageAssignment, or all to be integers"),
    ],
)
def test_other_lists_are_refused(kit: Kit, given: list[Any], message: str) -> None:
    model = Plain(kit)
    with pytest.raises(ValueError, match=message):
        model.set_pipeline_stage_assignment(given)
    assert {each.pipeline_stage for each in model.get_pipeline_stage_assignment()} == {None}


def test_functional_models_take_no_integers(kit: Kit) -> None:
    _, model = pair(kit, in_functional)
    with pytest.raises(ValueError, match="instances of FunctionalLayerPipelineStageAssignment"):
        model.set_pipeline_stage_assignment([0, 1, 2])
