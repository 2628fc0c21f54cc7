"""The programs of Graphcore's chapter "Keras with IPUs", section 19.4, run with the data that they leave out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tensorflow.python import ipu

from keras_ext.pipelining.schedules import pipeline_report
from tests.keras.helpers import Kit
from tests.keras.test_pipelining_stages import chapter_model

BATCH = 4


def fit(kit: Kit, model: Any, features: tuple[int, ...], steps: int) -> None:
    """Trains for two updates, then evaluates and predicts in executions of `steps` batches."""
    model.compile(kit.keras.optimizers.SGD(0.001), "mse", steps_per_execution=steps)
    x = np.random.default_rng(0).normal(size=(2 * steps * BATCH, *features)).astype(np.float32)
    y = np.zeros((len(x), *features[:-1], 1), np.float32)
    before = model.get_weights() if model.built else []
    losses = model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0).history["loss"]
    assert losses[2] < losses[0]
    assert all((one != other).any() for one, other in zip(model.get_weights(), before, strict=False))
    evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0)
    predicted = model.predict(x, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(evaluated, np.mean(np.square(predicted)), rtol=1e-4)


def test_sequential_model(kit: Kit) -> None:
    keras = kit.keras
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential(
            [
                keras.layers.Dense(8),  # Pipeline stage 0.
                keras.layers.Dense(16),  # Pipeline stage 0.
                keras.layers.Dense(16),  # Pipeline stage 1.
                keras.layers.Dense(1),  # Pipeline stage 1.
            ]
        )
        model.set_pipeline_stage_assignment([0, 0, 1, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        fit(kit, model, (6,), 4)


def test_functional_model_with_the_chapter_options(kit: Kit) -> None:
    keras = kit.keras
    with ipu.ipu_strategy.IPUStrategy().scope():
        input_layer = keras.layers.Input((28, 28))
        with keras.ipu.PipelineStage(0):
            x = keras.layers.Dense(8)(input_layer)
            x = keras.layers.Dense(16)(x)
        with keras.ipu.PipelineStage(1):
            x = keras.layers.Dense(16)(x)
            x = keras.layers.Dense(1)(x)
        model = keras.Model(inputs=input_layer, outputs=x)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=16,
            pipeline_schedule=ipu.ops.pipelining_ops.PipelineSchedule.Interleaved,
        )
        fit(kit, model, (28, 28), 16)


@pytest.mark.parametrize("built", [True, False])
def test_subclass(kit: Kit, built: bool) -> None:
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = chapter_model(kit)
        if built:
            model.build((BATCH, 28))
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    fit(kit, model, (28,), 8)
    assert {row.stage for row in model.get_pipeline_schedule("train")} == {0, 1, 2, 3}


def small_resnet(keras: Any, size: int) -> Any:
    """A model with two of ResNet50's blocks, under their names."""
    layers = keras.layers
    inputs = keras.Input((size, size, 3))
    x = layers.MaxPooling2D(4)(layers.Conv2D(4, 7, padding="same", activation="relu")(inputs))
    for block in (2, 3):
        y = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(x))
        x = layers.ReLU()(layers.Add(name=f"conv4_block{block}_add")([x, y]))
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))


def resnet50(keras: Any, size: int) -> Any:
    return keras.applications.ResNet50(weights=None, input_shape=(size, size, 3), classes=10)


@pytest.mark.parametrize(
    ("build", "size", "cut"),
    [
        (small_resnet, 16, (4, 4, 4)),
        pytest.param(resnet50, 64, (4, 4, 1024), marks=[pytest.mark.explore, pytest.mark.slow]),
    ],
)
def test_resnet50_cut_at_conv4_block2_add(kit: Kit, build: Any, size: int, cut: tuple[int, ...]) -> None:
    """Weights are random and pictures are 64 x 64, while the chapter has weights for ImageNet."""
    keras = kit.keras
    x = np.random.default_rng(1).uniform(size=(8, size, size, 3)).astype(np.float32)
    y = np.arange(8) % 10
    weights = []
    for pipelined in (True, False):
        keras.utils.set_random_seed(2)
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = build(keras, size)
            model.compile(keras.optimizers.SGD(0.001), "sparse_categorical_crossentropy", steps_per_execution=4)
            if pipelined:
                assignments = model.get_pipeline_stage_assignment()
                stage_id = 0
                for assignment in assignments:
                    assignment.pipeline_stage = stage_id
                    # Split the model on the `conv4_block2_add` layer.
                    if assignment.layer.name.startswith("conv4_block2_add"):
                        stage_id = 1
                model.set_pipeline_stage_assignment(assignments)
                model.print_pipeline_stage_assignment_summary(print_fn=lambda line: None)
                model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
            else:
                model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=4)
        model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
        weights.append(model.get_weights())
        if pipelined:
            # One activation, [2, *cut], crosses from stage 0 to stage 1, as the cut is after the sum.
            arriving, activation = pipeline_report(model).stages[1].arriving_bytes, 2 * math.prod(cut) * 4
            assert activation <= arriving < 3 * activation
    # Batches of two are normalised over few numbers, at least 2 * 2 * 2, which magnifies roundings in each of 53
    # layers.
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)
