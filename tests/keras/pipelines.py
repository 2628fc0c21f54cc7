"""Pipelined models for tests, and the comparison with the same model without stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipu.ipu_strategy import IPUStrategy
from ipu.utils import reset_ipu_seed
from tests.keras.helpers import CLASSES, FEATURES, Kit

BATCH = 4


def mlp(kit: Kit) -> Any:
    """Makes a model of four layers, for two to four stages."""
    layers = kit.keras.layers
    sizes = ((7, "relu"), (6, "tanh"), (5, "relu"), (CLASSES, None))
    return kit.keras.Sequential([layers.Input((FEATURES,)), *(layers.Dense(*size) for size in sizes)])


def set_stages(model: Any, stages: Sequence[int]) -> None:
    """Assigns the stages in order."""
    assignments = model.get_pipeline_stage_assignment()
    assert len(assignments) == len(stages)
    for assignment, stage in zip(assignments, stages, strict=True):
        assignment.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignments)


def loss_of(kit: Kit) -> Any:
    return kit.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def twins(
    kit: Kit,
    build: Callable[[Kit], Any],
    stages: Sequence[Any],
    steps: int,
    assign: Callable[[list[Any], list[Any]], None] | None = None,
    **pipelining: Any,
) -> tuple[Any, Any]:
    """The model with gradient accumulation, and the model as a pipeline with the same weights; both are compiled.

    `assign` puts the stages into the list of assignments if the list does not have one assignment for each stage.
    """
    models = []
    for number in range(2):
        kit.keras.utils.set_random_seed(11)
        with IPUStrategy().scope():
            model = build(kit)
            optimizer = kit.keras.optimizers.SGD(0.05, momentum=0.9)
            model.compile(optimizer, loss_of(kit), metrics=["accuracy"], steps_per_execution=2 * steps)
            models.append(model)
        if number == 0:
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=steps, gradient_accumulation_reduction_method="mean"
            )
        else:
            if assign is None:
                set_stages(model, stages)
            else:
                assignments = model.get_pipeline_stage_assignment()
                assign(assignments, list(stages))
                model.set_pipeline_stage_assignment(assignments)
            model.set_pipelining_options(
                gradient_accumulation_steps_per_replica=steps,
                gradient_accumulation_reduction_method="mean",
                **pipelining,
            )
    plain, pipelined = models
    if plain.built:  # otherwise they are built with the same seeds
        pipelined.set_weights(plain.get_weights())
    return plain, pipelined


def train_both(kit: Kit, models: tuple[Any, Any], x: np.ndarray, y: np.ndarray, epochs: int = 2) -> None:
    """Trains both models on the same batches with the same random numbers."""
    for model in models:
        kit.keras.utils.set_random_seed(5)
        reset_ipu_seed(5)
        model.fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)


def assert_same_bits(models: tuple[Any, Any]) -> None:
    """Both have the same weights."""
    plain, pipelined = models
    for one, other in zip(pipelined.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
