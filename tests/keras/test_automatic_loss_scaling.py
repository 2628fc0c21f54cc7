"""ALSOptimizer: the factor follows the gradients, and training is that of the optimizer inside."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, both_frameworks, data, keras3_only
from tests.keras.pipelines import loss_of, mlp, twins


def scaled(kit: Kit, **arguments: Any) -> Any:
    """A factory of optimizers: each model gets its own."""
    sgd = kit.keras.optimizers.SGD(0.1, momentum=0.9)
    return kit.keras.ipu.optimizers.ALSOptimizer(sgd, **arguments)


@both_frameworks
def test_training_is_that_of_the_inner_optimizer(kit: Kit) -> None:
    x, y = data()
    plain, model = kit.ipu_model(), kit.ipu_model(optimizer=scaled(kit, update_frequency=2))
    model.set_weights(plain.get_weights())
    for each in (plain, model):
        each.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    for one, other in zip(plain.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    assert float(model.optimizer.loss_scaling_factor) == 2**6  # 12 updates


def factors(kit: Kit, gradients: list[float], **arguments: Any) -> list[float]:
    """The factor after each update of two weights; the loss is w times their gradient."""
    keras = kit.keras
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False)])
        optimizer = keras.ipu.optimizers.ALSOptimizer(keras.optimizers.SGD(0.0), **arguments)
        model.compile(optimizer, lambda y, prediction: prediction)
    found = []
    for gradient in gradients:
        model.fit(np.full((1, 2), gradient, np.float32), np.zeros(1, np.float32), batch_size=1, verbose=0)
        found.append(float(optimizer.loss_scaling_factor))
    return found


@both_frameworks
def test_the_factor(kit: Kit) -> None:
    edge = {"histogram_bin_edge": 4.0}
    one = {"update_frequency": 1, **edge}
    assert factors(kit, [1.0] * 4, max_loss_scaling_factor=8, **one) == [2, 4, 4, 4]  # less than the largest value
    assert factors(kit, [3.0] * 3, **one) == [2, 1, 2]
    assert factors(kit, [100.0] * 2, **one) == [1, 1]
    assert factors(kit, [1.0, 5.0, 1.0, 1.0], update_frequency=2, initial_loss_scaling_factor=2, **edge) == [2, 1, 1, 2]
    last = {"accumulate_statistics_over_update_period": False}
    assert factors(kit, [5.0, 1.0], update_frequency=2, initial_loss_scaling_factor=2, **last, **edge) == [2, 4]


@pytest.mark.sample(3)
@pytest.mark.parametrize("arrangement", ["plain", "accumulated", "pipelined"])
@both_frameworks
def test_captured_gradients_alone_count(kit: Kit, arrangement: str) -> None:
    """The captured tensors have the gradients 8 y and y; a weight that is not captured has 800 y."""
    keras = kit.keras
    with IPUStrategy().scope():
        inputs = keras.Input((2,), batch_size=1)
        with keras.ipu.PipelineStage(0) if arrangement == "pipelined" else contextlib.nullcontext():
            inner = keras.layers.Dense(1, use_bias=False)
            x = keras.ipu.layers.CaptureActivationGradients(inner, "inner")(inputs)
        with keras.ipu.PipelineStage(1) if arrangement == "pipelined" else contextlib.nullcontext():
            outputs = keras.ipu.layers.CaptureUpstreamGradients()(keras.layers.Rescaling(8.0)(x))
        model = keras.Model(inputs, outputs)
        arguments = {"captured_grads_only": True, "histogram_bin_edge": 4.0}
        optimizer = keras.ipu.optimizers.ALSOptimizer(keras.optimizers.SGD(0.0), 2, 1, ratio_threshold=0.4, **arguments)
        model.compile(optimizer, lambda y, prediction: y * prediction, steps_per_execution=4)
        together = 1 if arrangement == "plain" else 4
        options = (
            model.set_pipelining_options if arrangement == "pipelined" else model.set_gradient_accumulation_options
        )
        options(gradient_accumulation_steps_per_replica=together)

    def factor(*y: float) -> float:
        optimizer._loss_scaling_factor.assign(2.0)
        model.fit(np.full((4, 2), 100, np.float32), np.float32(y)[:, None], 1, shuffle=False, verbose=0)
        return float(optimizer.loss_scaling_factor)

    if together == 1:  # one of two captured gradients is 2 * 8 y, above 4: the factor falls to 1, and stays
        assert factor(1, 1, 1, 1) == 1
        assert factor(0.1, 0.1, 0.1, 0.1) == 8  # after 4, 8, and 4 as 8 * 0.8 is large
    else:  # 2 and 4 of 8 captured gradients exceed the edge
        assert factor(1, 0, 0, 1) == 4
        assert factor(1, 1, 9, 0) == 1


def test_updates_are_counted_not_micro_batches(kit: Kit) -> None:
    """A pipeline's first stage runs before the gradients that change the factor are known."""
    x, y = data(32)
    twins_of = twins(kit, mlp, (0, 0, 1, 1), 4)
    for model in twins_of:
        model.compile(scaled(kit, update_frequency=2), loss_of(kit), steps_per_execution=8)
        model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
        assert float(model.optimizer.loss_scaling_factor) == 2**3  # 6 updates of 4 batches
    for one, other in zip(*(model.get_weights() for model in twins_of), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_factor_and_counts_are_saved(kit: Kit, tmp_path: Path) -> None:
    x, y = data()
    model = kit.ipu_model(optimizer=scaled(kit, update_frequency=4, lpf_alpha=0.5))
    model.fit(x, y, batch_size=4, verbose=0)
    model.save(tmp_path / "model.keras")
    with IPUStrategy().scope():
        loaded = kit.keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    for each in (model, loaded):
        each.fit(x[:8], y[:8], batch_size=4, shuffle=False, verbose=0)
        assert float(each.optimizer.loss_scaling_factor) == 4
    np.testing.assert_allclose(model.get_weights()[0], loaded.get_weights()[0], rtol=1e-6)


def test_errors(kit: Kit) -> None:
    for wrong in (
        {"initial_loss_scaling_factor": 3},
        {"increase_factor": 1},
        {"max_loss_scaling_factor": 2},
        {"update_frequency": 0},
        {"ratio_threshold": 1.0},
        {"lpf_alpha": 1.0},
    ):
        with pytest.raises(ValueError, match="Expected .*Received"):
            scaled(kit, **wrong)
    with pytest.raises(ValueError, match="without loss scaling"):
        kit.keras.ipu.optimizers.ALSOptimizer(scaled(kit))


@keras3_only
def test_apply_gradients_returns_the_number_of_updates(kit: Kit) -> None:
    optimizer, variable = scaled(kit), kit.keras.Variable(1.0)
    for updates in (1, 2):
        assert int(optimizer.apply_gradients([(tf.constant(1.0), variable)])) == updates
