"""Gradient accumulation and replicas against a loop in plain TensorFlow, and against fit on the big batch."""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from keras_ext.epochs import super_batches
from tests.keras.helpers import CLASSES, FEATURES, Kit, both_frameworks, data, keras3_only, tf_keras_only
from tests.keras.micro_batches import (
    Loop,
    assert_same_weights,
    batches_of,
    configure,
    ipu_twin,
    loss_of,
    network,
    plain_again,
)

BATCH, UPDATES = 3, 2
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True, "clipvalue": 0.1},
    "Adam": {"learning_rate": 0.01, "amsgrad": True},
    "AdamW": {"learning_rate": 0.01, "weight_decay": 0.1, "clipnorm": 0.5},
    "RMSprop": {"learning_rate": 0.01, "centered": True, "momentum": 0.5},
    "Adagrad": {"learning_rate": 0.05, "use_ema": True, "ema_momentum": 0.6},
    "Adadelta": {"learning_rate": 0.5, "use_ema": True, "ema_momentum": 0.6, "ema_overwrite_frequency": 3},
    "Adamax": {"learning_rate": 0.01, "weight_decay": 0.05},
    "Nadam": {"learning_rate": 0.01},
    "Ftrl": {"learning_rate": 0.05, "l1_regularization_strength": 0.01},
    "Lion": {"learning_rate": 0.001, "global_clipnorm": 1.0},
    "Adafactor": {"learning_rate": 0.05},
    "Lamb": {"learning_rate": 0.02, "weight_decay": 0.01},
    "Muon": {"learning_rate": 0.02},
    "LossScale": {"learning_rate": 0.05},
    "legacy.SGD": {"learning_rate": 0.05, "momentum": 0.9, "global_clipnorm": 1.0},
    "legacy.Adam": {"learning_rate": 0.01},
}
ONLY_IN = {"Lamb": "keras", "Muon": "keras", "legacy.SGD": "tf_keras", "legacy.Adam": "tf_keras"}


def decaying(kit: Kit, name: str, **arguments: Any) -> Any:
    """An optimizer whose learning rate halves with each update, and whose loss scale doubles with each second one."""
    optimizers = kit.keras.optimizers
    schedule = optimizers.schedules.ExponentialDecay(arguments.pop("learning_rate"), 1, 0.5, staircase=True)
    if name == "LossScale":
        inner = optimizers.SGD(schedule, momentum=0.9)
        if kit.is_keras3:
            return optimizers.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)
        return kit.keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)
    return attrgetter(name)(optimizers)(schedule, **arguments)


def check(kit: Kit, name: str, steps: int, replicas: int, reduction: str, make: Any = decaying) -> None:
    """Trains for some updates in one execution, and a second epoch in executions of one update."""
    configure(replicas)
    x, y = data(BATCH * steps * replicas * UPDATES)
    shared = plain_again(kit)
    plain = shared.model
    loop = Loop(shared, make(kit, name, **OPTIMIZERS[name]), steps, replicas, reduction)
    model = ipu_twin(kit, plain, make(kit, name, **OPTIMIZERS[name]), steps_per_execution=steps * UPDATES)
    model.set_gradient_accumulation_options(steps, reduction)
    if name == "Nadam" and not kit.is_keras3:  # built like the loop's: it counts traces, and a step that builds has two
        model.optimizer.build(model.trainable_variables)
    for _ in range(2):
        loop.run(batches_of(x, y, BATCH))
    history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, epochs=2).history
    if OPTIMIZERS[name].get("use_ema"):
        loop.optimizer.finalize_variable_values(plain.trainable_variables)
    assert_same_weights(model, plain)
    assert int(model.optimizer.iterations.numpy()) == 2 * UPDATES
    second = len(loop.losses) // 2
    np.testing.assert_allclose(history["loss"][1], np.mean(loop.losses[second:]), rtol=1e-4)
    np.testing.assert_allclose(history["accuracy"][1], np.mean(loop.right[second:]), rtol=1e-6)


@pytest.mark.sample(2)
@keras3_only
@pytest.mark.parametrize(
    ("steps", "replicas"), [(1, 1), (1, 2), (1, 4), (2, 1), (2, 3), (4, 2), (4, 4), (8, 1), (8, 3)]
)
def test_steps_and_replicas(kit: Kit, steps: int, replicas: int) -> None:
    check(kit, "Adam", steps, replicas, ["sum", "mean"][(steps + replicas) % 2])


@tf_keras_only
@pytest.mark.sample(2)
@pytest.mark.parametrize(("steps", "replicas"), [(1, 3), (4, 1), (8, 2), (2, 4)])
def test_steps_and_replicas_of_tf_keras(kit: Kit, steps: int, replicas: int) -> None:
    check(kit, "Adam", steps, replicas, ["sum", "mean"][replicas % 2])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "steps", "replicas"),
    [*((name, 2, 2) for name in OPTIMIZERS), *((name, 3, 1) for name in ("SGD", "Adadelta", "Nadam", "LossScale"))],
)
def test_optimizers(kit: Kit, name: str, steps: int, replicas: int) -> None:
    if ONLY_IN.get(name, kit.keras.__name__) == kit.keras.__name__:
        check(kit, name, steps, replicas, "sum")


@pytest.mark.sample(2)
@pytest.mark.parametrize("reduction", ["sum", "MEAN", "running_mean"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_reductions(kit: Kit, reduction: str, replicas: int) -> None:
    check(kit, "SGD", 4, replicas, reduction.lower())


def plain_model(kit: Kit) -> Any:
    """A model whose results do not depend on how samples are batched."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((FEATURES,))
    return kit.keras.Model(inputs, layers.Dense(CLASSES)(layers.Dense(6, "tanh")(inputs)))


@pytest.mark.parametrize(("replicas", "reduction"), [(1, "mean"), (2, "sum")])
def test_equals_fit_on_the_big_batch(kit: Kit, replicas: int, reduction: str) -> None:
    steps, size = 4, 2
    x, y = data(size * steps * replicas * 3)
    factor = 1 if reduction == "mean" else steps * replicas
    with IPUStrategy().scope():
        big, small = plain_model(kit), plain_model(kit)
        big.compile(kit.keras.optimizers.SGD(0.05 * factor, momentum=0.9), loss_of(kit))
        small.compile(kit.keras.optimizers.SGD(0.05, momentum=0.9), loss_of(kit), steps_per_execution=steps)
    small.set_weights(big.get_weights())
    small.set_gradient_accumulation_options(steps, reduction)
    big.fit(x, y, batch_size=size * steps * replicas, shuffle=False, verbose=0)
    configure(replicas)
    small.fit(x, y, batch_size=size, shuffle=False, verbose=0)
    assert_same_weights(small, big)


def test_evaluate_and_predict_ignore_accumulation(kit: Kit) -> None:
    x, y = data(BATCH * 3)
    model = ipu_twin(kit, network(kit), "sgd")
    before = model.evaluate(x, y, batch_size=BATCH, verbose=0), model.predict(x, batch_size=BATCH, verbose=0)
    model.set_gradient_accumulation_options(2)
    after = model.evaluate(x, y, batch_size=BATCH, verbose=0), model.predict(x, batch_size=BATCH, verbose=0)
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1], after[1])


def test_new_options_take_effect_and_old_programs_are_kept(kit: Kit) -> None:
    x, y = data(BATCH * 8)
    model = ipu_twin(kit, network(kit), "sgd", steps_per_execution=8)
    for steps, updates in ((1, 8), (4, 2), (8, 1), (None, 8), (4, 2)):
        model.set_gradient_accumulation_options(steps)
        before = int(model.optimizer.iterations.numpy())
        model.fit(x, y, batch_size=BATCH, verbose=0)
        assert int(model.optimizer.iterations.numpy()) - before == updates


def test_accumulators_may_have_another_type(kit: Kit) -> None:
    """A float16 accumulator loses addends below half of its last place; a float32 one does not."""
    weights = {}
    for dtype in (None, tf.float16, lambda variable: tf.float16 if "kernel" in variable.name else None):
        with IPUStrategy().scope():
            model = kit.keras.Sequential([kit.keras.layers.Input((1,)), kit.keras.layers.Dense(1, use_bias=False)])
            model.compile(kit.keras.optimizers.SGD(1.0), lambda y, p: p, steps_per_execution=3)
        model.set_weights([np.zeros((1, 1), np.float32)])
        model.set_gradient_accumulation_options(3, dtype=dtype, offload_weight_update_variables=True)
        x = np.array([[2048], [1], [1]], np.float32)
        model.fit(x, x, batch_size=1, shuffle=False, verbose=0)
        weights[dtype] = float(model.get_weights()[0][0, 0])
    assert list(weights.values()) == [-2050.0, -2048.0, -2048.0]


@keras3_only
def test_running_means_of_float64_are_as_exact_as_float64(kit: Kit) -> None:
    """The gradient of a linear model is the mean of its inputs."""
    configure(2)
    layers = kit.keras.layers
    x = np.random.default_rng(8).normal(size=(6, 1)).astype(np.float32).astype(float)  # Keras feeds float32
    with IPUStrategy().scope():
        start = layers.Input((1,), dtype="float64")
        model = kit.keras.Sequential([start, layers.Dense(1, use_bias=False, dtype="float64")])
        model.compile(kit.keras.optimizers.SGD(1.0), lambda y, p: p, steps_per_execution=3)
    model.set_weights([np.zeros((1, 1))])
    model.set_gradient_accumulation_options(3, "running_mean")
    model.fit(x, x, batch_size=1, shuffle=False, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0].item(), -x.sum() / 3, rtol=1e-14)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "2"])
def test_steps_are_positive_integers(kit: Kit, steps: Any) -> None:
    with pytest.raises(ValueError, match=f"at least 1. Received: {steps!r}. Nearest legal value: 1"):
        kit.ipu_model().set_gradient_accumulation_options(steps)


@pytest.mark.parametrize("name", ["opt", "optimizer", "num_mini_batches", "experimental_normalize_gradients"])
def test_arguments_that_keras_fills_in(kit: Kit, name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}', which Keras sets itself"):
        kit.ipu_model().set_gradient_accumulation_options(2, **{name: 1})


def test_other_wrong_arguments(kit: Kit) -> None:
    model = kit.ipu_model()
    with pytest.raises(ValueError, match="Received: 'dtpye'"):
        model.set_gradient_accumulation_options(2, dtpye=tf.float32)
    with pytest.raises(ValueError, match="floating-point type.*int32"):
        model.set_gradient_accumulation_options(2, dtype=tf.int32)
    with pytest.raises(ValueError, match="'sum', 'mean', 'running_mean'. Received: 'max'"):
        model.set_gradient_accumulation_options(2, "max")
    assert not hasattr(kit.sequential(), "set_gradient_accumulation_options")


def test_an_execution_is_a_whole_number_of_updates(kit: Kit) -> None:
    x, y = data(BATCH * 8)
    model = ipu_twin(kit, network(kit), "sgd", steps_per_execution=8)
    model.set_gradient_accumulation_options(3)
    with pytest.raises(
        RuntimeError, match=r"steps_per_execution=8.*=3\. Nearest legal values of steps_per_execution: 6 or 9"
    ):
        model.fit(x, y, batch_size=BATCH, verbose=0)


def test_the_last_execution_is_a_whole_number_of_updates(kit: Kit) -> None:
    x, y = data(BATCH * 10)
    model = ipu_twin(kit, network(kit), "sgd", steps_per_execution=4)
    model.set_gradient_accumulation_options(4)
    with pytest.raises(RuntimeError, match="10 steps.*=4. Nearest legal numbers of steps: 8 or 12"):
        model.fit(x, y, batch_size=BATCH, verbose=0)
    model.set_gradient_accumulation_options(2)
    model.fit(x, y, batch_size=BATCH, verbose=0)


def test_the_effective_batch_is_said(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    configure(2)
    model = kit.ipu_model()
    with caplog.at_level(logging.INFO, logger="ipu"):
        model.set_gradient_accumulation_options(4)
    assert "accumulation of 4 steps in each of 2 replicas" in caplog.text and "8 times" in caplog.text


def test_minimize_of_an_optimizer_would_not_be_called(kit: Kit) -> None:
    class Own(kit.keras.optimizers.SGD):  # type: ignore[name-defined]
        def minimize(self, *arguments: Any, **named: Any) -> None:
            raise AssertionError

    x, y = data(BATCH * 2)
    model = ipu_twin(kit, network(kit), Own(0.1), steps_per_execution=2)
    model.set_gradient_accumulation_options(2)
    with pytest.raises(ValueError, match="override minimize.*Own"):
        model.fit(x, y, batch_size=BATCH, verbose=0)


@keras3_only  # tf_keras' layer cannot be built with TensorFlow's Keras beside it
def test_weights_that_each_batch_changes_are_refused(kit: Kit) -> None:
    layers = kit.keras.layers
    with IPUStrategy().scope():
        hidden = layers.SpectralNormalization(layers.Dense(4))
        model = kit.keras.Sequential([layers.Input((FEATURES,)), hidden, layers.Dense(CLASSES)])
        model.compile("adam", loss_of(kit), steps_per_execution=2)
    x, y = data(BATCH * 2)
    model.fit(x, y, batch_size=BATCH, verbose=0)
    model.set_gradient_accumulation_options(2)
    with pytest.raises(ValueError, match="an update of '.*kernel.*gradient_accumulation_steps_per_replica = 1"):
        model.fit(x, y, batch_size=BATCH, verbose=0)


@both_frameworks
@pytest.mark.parametrize(("steps", "replicas"), [(2, 1), (1, 2), (2, 2)])
def test_an_update_takes_batches_of_several_parts_of_the_data(
    kit: Kit, steps: int, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts are passes over five batches, each smaller than two updates, and super-batches of one or two."""
    configure(replicas)
    x, y = data(BATCH * 5)
    batches, count = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH), 4 * steps * replicas
    whole = [np.concatenate([each] * 4)[: count * BATCH] for each in (x, y)]
    all_in_one: dict[str, Any] = {"x": whole[0], "y": whole[1], "batch_size": BATCH}
    in_parts = {"epochs": 2, "steps_per_epoch": count // 2}
    cases = [
        (2**26, all_in_one),
        (2**26, {"x": batches.repeat(), **in_parts}),
        (BATCH * FEATURES * 10, {"x": batches.repeat(), **in_parts}),
        (2**26, {"x": (each for each in batches.repeat().as_numpy_iterator()), **in_parts}),
    ]
    weights = []
    for most, arguments in cases:
        monkeypatch.setattr(super_batches, "MOST_BYTES", most)
        kit.keras.utils.set_random_seed(3)
        model = kit.ipu_model(steps_per_execution=2 * steps)
        model.set_gradient_accumulation_options(steps)
        model.fit(shuffle=False, verbose=0, **arguments)
        weights.append(model.get_weights())
        assert int(model.optimizer.iterations) == 4
    for other in weights[1:]:
        for received, expected in zip(other, weights[0], strict=True):
            np.testing.assert_array_equal(received, expected)
