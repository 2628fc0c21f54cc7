"""PipelineStage scopes: around layers and around calls, in all kinds of models, and where they are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from keras_ext.extensions import PipelineStage
from tests.keras.helpers import FEATURES, Kit, data


def stages_of(model: Any) -> list[tuple[str, int]]:
    """The class of the layer and the stage of each assignment."""
    return [(type(a.layer).__name__, a.pipeline_stage) for a in model.get_pipeline_stage_assignment()]


def chapter_model(kit: Kit) -> Any:
    """The subclass as the documentation has it."""
    keras = kit.keras

    class MyModel(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(self)
            self.dense_layer_1 = keras.layers.Dense(8)
            self.dense_layer_2 = keras.layers.Dense(8)
            self.concat_layer = keras.layers.Concatenate()
            self.dense_layer_3 = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            with keras.ipu.PipelineStage(0):
                x = self.dense_layer_1(inputs)
            with keras.ipu.PipelineStage(1):
                x1 = self.dense_layer_2(x)
                x2 = self.dense_layer_2(x)
            with keras.ipu.PipelineStage(2):
                x1 = self.dense_layer_2(x1)
                x2 = self.dense_layer_2(x2)
                x = self.concat_layer([x1, x2])
            with keras.ipu.PipelineStage(3):
                x = self.dense_layer_3(x)
            return x

    return MyModel()


def test_all_names_mean_the_same_class(kit: Kit) -> None:
    from tensorflow.python import ipu

    assert kit.keras.ipu.PipelineStage is PipelineStage
    assert kit.keras.ipu.extensions.PipelineStage is PipelineStage
    assert ipu.keras.PipelineStage is PipelineStage


def test_functional_calls_in_scopes(kit: Kit) -> None:
    keras = kit.keras
    with IPUStrategy().scope():
        inputs = keras.layers.Input((28, 28))
        with PipelineStage(0):
            x = keras.layers.Dense(8)(inputs)
            x = keras.layers.Dense(16)(x)
        with PipelineStage(1):
            x = keras.layers.Dense(16)(x)
            x = keras.layers.Dense(1)(x)
        model = keras.Model(inputs=inputs, outputs=x)
    assert [stage for _, stage in stages_of(model)] == [0, 0, 1, 1]
    assert [a.node_index for a in model.get_pipeline_stage_assignment()] == [0, 0, 0, 0]


def test_a_call_outweighs_the_construction(kit: Kit) -> None:
    keras = kit.keras
    with IPUStrategy().scope():
        with PipelineStage(0):
            shared, other = keras.layers.Dense(FEATURES), keras.layers.Dense(2)
        inputs = keras.Input((FEATURES,))
        x = shared(inputs)
        with PipelineStage(1):
            x = shared(x)
            x = other(x)
        model = keras.Model(inputs, x)
    assignments = model.get_pipeline_stage_assignment()
    assert [(a.layer, a.node_index, a.pipeline_stage) for a in assignments] == [
        (shared, 0, 0),
        (shared, 1, 1),
        (other, 0, 1),
    ]
    assert assignments[1].inbound_layers is shared


def test_node_indices_count_the_calls_in_this_model(kit: Kit) -> None:
    keras = kit.keras
    with IPUStrategy().scope():
        shared = keras.layers.Dense(FEATURES)
        shared(keras.Input((FEATURES,)))
        inputs = keras.Input((FEATURES,))
        x = shared(shared(inputs))
        model = keras.Model(inputs, x)
    assert [a.node_index for a in model.get_pipeline_stage_assignment()] == [0, 1]


def test_layers_of_a_sequential_model_made_in_scopes(kit: Kit) -> None:
    keras = kit.keras
    with IPUStrategy().scope():
        with PipelineStage(0):
            first = keras.layers.Dense(4)
        with PipelineStage(1):
            second = keras.layers.Dense(2)
        model = keras.Sequential([first, second])
    assert stages_of(model) == [("Dense", 0), ("Dense", 1)]


def test_operations_and_nested_models_have_stages(kit: Kit) -> None:
    keras = kit.keras
    with IPUStrategy().scope():
        inner = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(FEATURES)])
        inputs = keras.Input((FEATURES,))
        with PipelineStage(0):
            x = inner(inputs)
        with PipelineStage(1):
            x = x * 2.0 if kit.is_keras3 else tf.nn.relu(x) * 2.0
        model = keras.Model(inputs, x)
    assignments = model.get_pipeline_stage_assignment()
    assert assignments[0].layer is inner
    assert [a.pipeline_stage for a in assignments] == [0, 1] if kit.is_keras3 else [0, 1, 1]


def test_chapter_subclass(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = chapter_model(kit)
        model.build((28, 28))
    found = {(a.layer.name, a.node_index): a.pipeline_stage for a in model.get_pipeline_stage_assignment()}
    second, concatenation = model.dense_layer_2.name, model.concat_layer.name
    assert found == {
        (model.dense_layer_1.name, 0): 0,
        (second, 0): 1,
        (second, 1): 1,
        (second, 2): 2,
        (second, 3): 2,
        (concatenation, 0): 2,
        (model.dense_layer_3.name, 0): 3,
    }


def test_chapter_subclass_that_exists(kit: Kit) -> None:
    keras = kit.keras

    class ExistingModel(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense_layer_1 = keras.layers.Dense(8)
            self.dense_layer_2 = keras.layers.Dense(8)
            self.concat_layer = keras.layers.Concatenate()
            self.dense_layer_3 = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            x = self.dense_layer_1(inputs)
            x1, x2 = self.dense_layer_2(x), self.dense_layer_2(x)
            x1, x2 = self.dense_layer_2(x1), self.dense_layer_2(x2)
            return self.dense_layer_3(self.concat_layer([x1, x2]))

    with IPUStrategy().scope():
        model = ExistingModel()
        model.build((28, 28))
        assignments = model.get_pipeline_stage_assignment()
        assert all(assignment.pipeline_stage is None for assignment in assignments)
        for assignment in assignments:
            if assignment.layer == model.dense_layer_1:
                assignment.pipeline_stage = 0
            elif assignment.layer == model.dense_layer_2 and assignment.node_index < 2:
                assignment.pipeline_stage = 1
            elif assignment.layer == model.dense_layer_2 and assignment.node_index < 4:
                assignment.pipeline_stage = 2
            elif assignment.layer == model.concat_layer:
                assignment.pipeline_stage = 2
            elif assignment.layer == model.dense_layer_3:
                assignment.pipeline_stage = 3
        model.set_pipeline_stage_assignment(assignments)
    again = model.get_pipeline_stage_assignment()
    assert [a.pipeline_stage for a in again] == [a.pipeline_stage for a in assignments]
    assert all(one is not other for one, other in zip(again, assignments, strict=True))


def test_build_takes_inputs_with_types(kit: Kit) -> None:
    keras = kit.keras

    class Embedded(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            with PipelineStage(0):
                self.embedding = keras.layers.Embedding(10, 4)
            with PipelineStage(1):
                self.head = keras.layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            return self.head(self.embedding(inputs))

    with IPUStrategy().scope():
        model = Embedded()
        model.build(keras.Input((3,), batch_size=4, dtype="int32"))
    assert stages_of(model) == [("Embedding", 0), ("Dense", 1)]


def test_calling_a_model_ignores_its_stages(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = chapter_model(kit)
        x = np.ones((4, 6), np.float32)
        result = model(x)
    first, second, last = (
        layer.get_weights() for layer in (model.dense_layer_1, model.dense_layer_2, model.dense_layer_3)
    )
    hidden = x @ first[0] + first[1]
    for _ in range(2):
        hidden = hidden @ second[0] + second[1]
    expected = np.concatenate([hidden, hidden], axis=1) @ last[0] + last[1]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_scopes_outside_a_strategy_are_refused(kit: Kit) -> None:
    with pytest.raises(RuntimeError, match="inside an IPUStrategy's scope"), PipelineStage(0):
        pass


def test_nested_scopes_are_refused(kit: Kit) -> None:
    with IPUStrategy().scope(), PipelineStage(0):
        with pytest.raises(RuntimeError, match=r"PipelineStage\(1\) inside PipelineStage\(0\)"), PipelineStage(1):
            pass
    with IPUStrategy().scope(), PipelineStage(1):
        pass


@pytest.mark.parametrize("stage", [-1, 1.5, "0", True, None])
def test_stages_that_are_no_numbers_are_refused(kit: Kit, stage: Any) -> None:
    with pytest.raises(ValueError, match="integer of at least 0"):
        PipelineStage(stage)


def test_a_subclass_must_be_built_first(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = chapter_model(kit)
    with pytest.raises(RuntimeError, match=r"Call build\(\)"):
        model.get_pipeline_stage_assignment()


def test_a_layer_left_out_of_scopes_is_refused(kit: Kit) -> None:
    keras = kit.keras
    with IPUStrategy().scope():
        inputs = keras.Input((FEATURES,))
        with PipelineStage(0):
            x = keras.layers.Dense(4)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(3)(x))
        model.compile("sgd", "mse")
    x, y = data()
    with pytest.raises(ValueError, match="all layers to have a pipeline stage"):
        model.fit(x, y, verbose=0)


def test_models_outside_a_strategy_have_none_of_it(kit: Kit) -> None:
    model = kit.sequential()
    assert not hasattr(model, "set_pipeline_stage_assignment")
