"""Models of strided and transposed convolutions of 4 x 4 taps, as DCGAN and pix2pix have them, in both Kerases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.compile import build_program
from engine.host.convolutions.winograd_work import WinogradKernel, WinogradSums
from engine.host.passes.pass_list import HOST_PASSES
from engine.program.run_passes import run_passes
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from keras_ext.frameworks.keras3 import Keras3
from keras_ext.frameworks.tf_keras import TFKeras
from tests.keras.helpers import Kit

SIZE, BATCH = (16, 16, 32), 16


def autoencoder(kit: Kit) -> Any:
    """Two convolutions of stride 2, and two transposed ones back to the size of the input."""
    layers = kit.keras.layers
    down = [layers.Conv2D(features, 4, 2, "same", activation="tanh") for features in (64, 128)]
    up = [layers.Conv2DTranspose(features, 4, 2, "same", activation="tanh") for features in (64, 32)]
    return kit.keras.Sequential([layers.Input(SIZE), *down, *up])


def test_all_but_small_ones_are_transformed(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    framework = Keras3() if kit.is_keras3 else TFKeras()
    with IPUStrategy().scope():
        model = autoencoder(kit)
        model.compile(kit.keras.optimizers.SGD(0.1), "mse")
        model.optimizer.build(model.trainable_variables)
    batch = [tf.TensorSpec([4 * BATCH, *SIZE])] * 2
    traced = trace_step(lambda *data: framework.step(model, "train", data), batch)
    program = run_passes(build_program(traced.module, traced.roles, traced.constants), HOST_PASSES)
    made = [type(each.work) for each in program.compute_sets]
    # Gradients by all four kernels. The convolutions and the transposed ones' gradients by input have one kernel of all
    # phases; the transposed ones and the second convolution's gradient by input have one for each phase.
    assert made.count(WinogradSums) == 4
    assert made.count(WinogradKernel) == 4 + 3 * 4


def test_training_is_that_of_keras(kit: Kit) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(3 * BATCH, *SIZE)).astype(np.float32) for _ in range(2))

    def program(model: Any) -> Any:
        history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
        return [history, model.predict(x[:BATCH], verbose=0)]

    kit.assert_same(program, lambda: autoencoder(kit), loss="mse", metrics=[], steps_per_execution=3)
