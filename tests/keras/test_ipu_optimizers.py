"""The optimizers of `keras.ipu.optimizers`: Keras' own where dtypes are float32, and states of other dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from keras_ext.optimizers import DEFINITIONS
from tests.exploring import sample
from tests.keras.helpers import Kit, both_frameworks, data

SAME: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "AdamIpuOptimizer": ({"beta_1": 0.8}, "Adam", {"beta_1": 0.8}),
    "AdamIpuOptimizer, amsgrad": ({"amsgrad": True, "vhat_dtype": "float32"}, "Adam", {"amsgrad": True}),
    "SGDIpuOptimizer": ({"learning_rate": 0.1}, "SGD", {"learning_rate": 0.1}),
    "SGDIpuOptimizer, nesterov": ({"momentum": 0.9, "nesterov": True}, "SGD", {"momentum": 0.9, "nesterov": True}),
}


def states(model: Any) -> list[Any]:
    """Variables of the optimizer that have the size of a weight."""
    return [variable for variable in model.optimizer.variables if len(variable.shape)]


@pytest.mark.parametrize("name", SAME)
def test_training_is_that_of_keras_own_optimizer(kit: Kit, name: str) -> None:
    ours, own, arguments = SAME[name]
    x, y = data()

    def optimizer() -> Any:
        if isinstance(tf.distribute.get_strategy(), IPUStrategy):
            return getattr(kit.keras.ipu.optimizers, name.partition(",")[0])(**ours)
        return getattr(kit.keras.optimizers, own)(**arguments)

    kit.assert_same(
        lambda model: model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history, optimizer=optimizer
    )


@both_frameworks
def test_lamb(kit: Kit) -> None:
    """Results equal Keras 3's; weight decay by name and a clipped norm, which Keras 3 lacks, follow the definition."""
    x, y = data()
    optimizers = kit.keras.ipu.optimizers
    model = kit.ipu_model(optimizer=optimizers.LAMBIpuOptimizer(0.01))
    plain = kit.compiled(kit.sequential(), optimizer=keras3.optimizers.Lamb(0.01)) if kit.is_keras3 else None
    if plain is not None:
        plain.set_weights(model.get_weights())
        for each in (model, plain):
            each.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        for one, other in zip(model.get_weights(), plain.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    arguments = {"weight_decay_rate": 0.5, "exclude_from_weight_decay": ["bias"], "weight_norm_clip": 0.25}
    optimizer = optimizers.LAMBIpuOptimizer(0.1, debiasing=False, **arguments)
    dense = kit.keras.Sequential([kit.keras.layers.Input((3,)), kit.keras.layers.Dense(2)])
    kernel, bias = dense.get_weights()
    gradients = [np.full((3, 2), 0.5, np.float32), np.array([2.0, -1.0], np.float32)]
    optimizer.apply_gradients(zip(map(tf.constant, gradients), dense.trainable_variables, strict=True))
    for gradient, old, new in zip(gradients, (kernel, bias), dense.get_weights(), strict=True):
        step = 0.1 * gradient / (np.sqrt(0.001 * gradient**2) + 1e-6)
        if old is kernel:
            step += 0.5 * old
            step *= min(np.linalg.norm(old), 0.25) / np.linalg.norm(step)
        np.testing.assert_allclose(new, old - 0.1 * step, rtol=1e-5)


@pytest.mark.sample(1)
def test_states_of_float16(kit: Kit) -> None:
    """Half the memory, and nearly the same training; moments are rounded once a step."""
    x, y = data()
    optimizers = kit.keras.ipu.optimizers
    adam = {"m_dtype": tf.float16, "v_dtype": "float32"}
    for wide, narrow, dtypes in (
        (optimizers.AdamIpuOptimizer(), optimizers.AdamIpuOptimizer(**adam), {tf.float16, tf.float32}),
        (
            optimizers.SGDIpuOptimizer(momentum=0.9),
            optimizers.SGDIpuOptimizer(momentum=0.9, momentum_accum_dtype="float16"),
            {tf.float16},
        ),
    ):
        losses = []
        for optimizer in (wide, narrow):
            model = kit.ipu_model(optimizer=optimizer)
            model.set_weights([np.full_like(weight, 0.1) + weight.size * 0.01 for weight in model.get_weights()])
            losses.append(model.fit(x, y, batch_size=8, epochs=4, shuffle=False, verbose=0).history["loss"])
        assert {tf.as_dtype(state.dtype) for state in states(model)} == dtypes
        np.testing.assert_allclose(*losses, rtol=1e-3)
        assert losses[0] != losses[1]


@pytest.mark.sample(1)
def test_saved_and_continued(kit: Kit, tmp_path: Path) -> None:
    x, y = data()
    for name in sample(sorted(DEFINITIONS.keys() - {"ALSOptimizer"}), 2):
        kind = getattr(kit.keras.ipu.optimizers, name)
        model = kit.ipu_model(optimizer=kind(0.02, optimizer_compute_precisions=["float32"] * DEFINITIONS[name].stages))
        model.fit(x, y, batch_size=8, verbose=0)
        model.save(tmp_path / "model.keras")
        with IPUStrategy().scope():
            loaded = kit.keras.models.load_model(tmp_path / "model.keras")
        assert type(loaded.optimizer) is kind
        assert loaded.optimizer.get_config() == model.optimizer.get_config()
        histories = [each.fit(x, y, batch_size=8, shuffle=False, verbose=0).history for each in (model, loaded)]
        np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], rtol=1e-6)
        with pytest.raises(ValueError, match=f"of {kind.stages} dtypes"):
            kind(optimizer_compute_precisions=(tf.float16,) * 4)
