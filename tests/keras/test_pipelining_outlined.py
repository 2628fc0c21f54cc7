"""Outlined functions in several stages, whose calls share a body, to the bits of the same model unsplit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.partition import stages as partition_stages
from tests.keras.helpers import CLASSES, Kit
from tests.keras.pipelines import BATCH, assert_same_bits, train_both, twins

SHAPE, STEPS = (4, 4, 3), 12


def pooled(x: tf.Tensor) -> tf.Tensor:
    """A pool; the gradient takes values of the forward pass."""
    return tf.nn.max_pool2d(x, 3, 1, "SAME") + x


def resized(x: tf.Tensor) -> tf.Tensor:
    """A resizing; the gradient takes no values of the forward pass."""
    return tf.image.resize(x, (8, 8), "nearest")[:, ::2, ::2]


@pytest.mark.parametrize("functions", [(pooled, pooled, pooled), (pooled, resized, resized)])
def test_gradients_are_in_the_stage_of_their_call(
    kit: Kit, functions: tuple[Callable[..., Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    placements = []

    def placed(*args: Any, **kwargs: Any) -> Any:
        placements.append(place(*args, **kwargs))
        return placements[-1]

    place = partition_stages.place
    monkeypatch.setattr("engine.partition.pipeline.place", placed)

    def build(kit: Kit) -> Any:
        class Outlined(kit.keras.layers.Layer):  # type: ignore[name-defined]
            def __init__(self, function: Callable[..., Any]) -> None:
                super().__init__()
                self.function = ipu.functional_ops.outlined_function(function)

            def call(self, x: Any) -> Any:
                return self.function(self.function(x))

        layers = kit.keras.layers
        model = kit.keras.Sequential([layers.Input(SHAPE)])
        for function in functions:
            model.add(layers.Conv2D(3, 3, padding="same", activation="tanh"))
            model.add(Outlined(function))
        model.add(layers.Flatten())
        model.add(layers.Dense(CLASSES))
        return model

    models = twins(kit, build, [0, 0, 1, 1, 2, 2, 2, 2], STEPS)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2 * STEPS * BATCH, *SHAPE)).astype(np.float32)
    train_both(kit, models, x, generator.integers(0, CLASSES, len(x)))
    assert_same_bits(models)
    found = {
        placement.stage(position)
        for placement in placements
        for each, position in placement.position.items()
        if each.opcode in ("reduce-window", "select-and-scatter")
    }
    assert found == {stage for stage, function in enumerate(functions) if function is pooled}
