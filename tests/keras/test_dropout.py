"""Dropout of `keras.ipu.layers`: seeds, replicas, and one mask for a step's forward and backward passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import RecomputationMode
from tests.keras.helpers import Kit, both_frameworks
from tests.keras.micro_batches import configure
from tests.keras.pipelines import set_stages

RATE = 0.25


def dropping(kit: Kit, rows: int, **arguments: Any) -> np.ndarray:
    """Predictions of a model that drops from ones: [rows, 40]."""
    keras = kit.keras

    class Always(keras.ipu.layers.Dropout):  # type: ignore[name-defined, misc]
        def call(self, inputs: Any, training: Any = None) -> Any:
            return super().call(inputs, training=True)

    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((40,)), Always(RATE, **arguments)])
        model.compile()
    return np.asarray(model.predict(np.ones((rows, 40), np.float32), batch_size=2, verbose=0))


@both_frameworks
def test_masks_of_seeds(kit: Kit) -> None:
    masks = dropping(kit, 4, seed=(1, 2))
    kept = masks != 0
    np.testing.assert_allclose(masks[kept], 1 / (1 - RATE), rtol=1e-6)
    assert 0.5 < kept.mean() < 0.95
    np.testing.assert_array_equal(masks[:2], masks[2:])
    np.testing.assert_array_equal(masks, dropping(kit, 4, seed=np.array([1, 2])))
    others = [{"seed": (2, 2)}, {"seed": (1, 3)}, {"seed": (1, 2), "seed_modifier": 2}, {}]
    assert all((masks != dropping(kit, 4, **other)).any() for other in others)
    unseeded = dropping(kit, 4)
    assert (unseeded[:2] != unseeded[2:]).any() and (unseeded != dropping(kit, 4)).any()
    shared = dropping(kit, 4, seed=(1, 2), noise_shape=np.array([2, 1]))
    np.testing.assert_array_equal(shared, shared[:, :1] + np.zeros_like(shared))


def test_replicas_draw_masks_of_their_own(kit: Kit) -> None:
    configure(2)
    unseeded = dropping(kit, 4)
    assert (unseeded[:2] != unseeded[2:]).any()
    seeded = dropping(kit, 4, seed=(1, 2))
    np.testing.assert_array_equal(seeded[:2], seeded[2:])


@pytest.mark.parametrize("stages", [None, (0, 0, 1, 1)], ids=["one IPU", "recomputed in a pipeline"])
@pytest.mark.parametrize("seed", [None, (5, 6)], ids=["", "seeded"])
def test_the_gradient_has_the_mask_of_the_loss(kit: Kit, seed: tuple[int, int] | None, stages: Any) -> None:
    """The mean of w * x * mask equals its gradient by w, for a weight of 1."""
    keras = kit.keras
    with IPUStrategy().scope():
        inputs = keras.Input((40, 1))
        x = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(inputs)
        x = keras.ipu.layers.Dropout(0.5, seed=seed)(x)
        x = keras.layers.Flatten()(x)
        model = keras.Model(inputs, keras.layers.Activation("linear")(x))
        optimizer = keras.optimizers.SGD(1.0)
        model.compile(optimizer, lambda y, prediction: prediction, steps_per_execution=4)
    if stages is not None:
        set_stages(model, stages)
        mode = RecomputationMode.RecomputeAndBackpropagateInterleaved
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=4,
            gradient_accumulation_reduction_method="mean",
            recomputation_mode=mode,
        )
    x = np.random.default_rng(4).normal(size=(8, 40, 1)).astype(np.float32)
    rows = x if stages is not None else x[:2]
    loss = model.fit(rows, rows[..., 0], batch_size=2, shuffle=False, verbose=0).history["loss"][0]
    np.testing.assert_allclose(1 - model.get_weights()[0].item(), loss, rtol=1e-5, atol=1e-6)
