"""Stages whose layers compute nothing: none at inference, only another shape, or weights of another stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu.config import IPUConfig
from ipu.ops.pipelining_ops import PipelineSchedule
from keras_ext.chip import chip_estimate
from tests.keras.helpers import CLASSES, FEATURES, Kit, data
from tests.keras.pipelines import BATCH, assert_same_bits, train_both, twins

STEPS = 12


def between(kit: Kit) -> Any:
    """A model with a stage of Dropout, which inference lacks, and one of a linear activation and a Reshape."""
    layers = kit.keras.layers
    middle = [layers.Dropout(0.4), layers.Activation("linear"), layers.Reshape((6,))]
    return kit.keras.Sequential([layers.Input((FEATURES,)), layers.Dense(6, "tanh"), *middle, layers.Dense(CLASSES)])


def at_the_ends(kit: Kit) -> Any:
    """A model whose first and last stage compute nothing."""
    layers = kit.keras.layers
    inputs = [layers.Input((1, FEATURES)), layers.Flatten()]
    return kit.keras.Sequential([*inputs, layers.Dense(CLASSES, "tanh"), layers.Activation("linear")])


@pytest.mark.sample(1)
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_stages_between(kit: Kit, schedule: PipelineSchedule) -> None:
    models = twins(kit, between, [0, 1, 2, 2, 2], STEPS, pipeline_schedule=schedule)
    x, y = data(2 * STEPS * BATCH)
    results = []
    config = IPUConfig()
    config.allow_recompute = True
    for model, ipus in zip(models, (1, 4), strict=True):
        config.auto_select_ipus = ipus
        config.configure_ipu_system()
        before = model.predict(x, batch_size=BATCH, verbose=0)
        train_both(kit, (model,), x, y, epochs=1)
        results.append((before, model.evaluate(x, y, batch_size=BATCH, verbose=0)))
    np.testing.assert_array_equal(results[1][0], results[0][0])
    if kit.is_keras3 or schedule is PipelineSchedule.Sequential:  # in other schedules tf_keras draws in another order
        assert_same_bits(models)
        np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-6)
    assert {row.stage for row in models[1].get_pipeline_schedule("predict")} == {0, 1, 2}
    estimate = chip_estimate(models[1]).pipeline
    assert estimate is not None and len(estimate.parts) >= 3


def test_stages_at_the_ends(kit: Kit) -> None:
    models = twins(kit, at_the_ends, [0, 1, 2], STEPS)
    x, y = data(2 * STEPS * BATCH)
    x = x[:, None]
    train_both(kit, models, x, y, epochs=1)
    assert_same_bits(models)
    one, other = (model.predict(x, batch_size=BATCH, verbose=0) for model in models)
    np.testing.assert_array_equal(other, one)
    estimate = chip_estimate(models[1]).pipeline
    assert estimate is not None and estimate.period > 0
