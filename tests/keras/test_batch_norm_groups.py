"""Batch normalisation over groups of replicas against plain Keras on the groups' batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from keras_ext.chip import chip_estimate
from tests.keras.helpers import Kit, keras3_only, tf_keras_only
from tests.keras.pipelines import set_stages

BATCH, UPDATES = 3, 2


def configure(replicas: int, group: int) -> None:
    config = IPUConfig()
    config.auto_select_ipus = replicas
    config.norms.experimental.distributed_batch_norm_replica_group_size = group
    config.configure_ipu_system()


def dense(kit: Kit) -> Any:
    """Moments of [batch, features]: primitive operations in both Keras."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((5,))
    hidden = layers.BatchNormalization(momentum=0.8)(layers.Dense(6)(inputs))
    return kit.keras.Model(inputs, layers.Dense(3)(layers.Activation("tanh")(hidden)))


def convolution(kit: Kit) -> Any:
    """Moments of [batch, y, x, features]: a fused batch normalisation in tf_keras, with its unbiased variance."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((5, 5, 2))
    hidden = layers.BatchNormalization(momentum=0.8)(layers.Conv2D(4, 3)(inputs))
    return kit.keras.Model(inputs, layers.Dense(3)(layers.Flatten()(layers.Activation("tanh")(hidden))))


def masked(kit: Kit) -> Any:
    """Moments of the steps that are not masked: their number differs from replica to replica."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((4, 5))
    hidden = layers.BatchNormalization(momentum=0.8)(layers.Masking()(inputs))
    pooled = layers.GlobalAveragePooling1D()(hidden)
    return kit.keras.Model(inputs, layers.Dense(3)(pooled))


def made_data(shape: tuple[int, ...], samples: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(6)
    x = generator.normal(1.0, 2.0, (samples, *shape)).astype(np.float32)
    if len(shape) == 2:
        x[generator.random(x.shape[:2]) < 0.4] = 0.0
    return x, generator.normal(size=(samples, 3)).astype(np.float32)


def train_in_plain_keras(
    kit: Kit, model: Any, x: np.ndarray, y: np.ndarray, steps: int, replicas: int, group: int
) -> None:
    """Gradients of the sum of all micro-batches' losses, which are normalised with the statistics of a group's batches.

    Afterwards the model has the moving statistics of the first group.
    """
    variables = [kit.variable(weight) for weight in model.trainable_variables]
    optimizer = kit.keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)
    size, total = BATCH * group, []
    for number, start in enumerate(range(0, len(x), size)):
        is_first = number % (replicas // group) == 0
        before = [variable.numpy() for variable in model.non_trainable_variables]
        with tf.GradientTape() as tape:
            outputs = model(x[start : start + size], training=True)
            loss = group * tf.reduce_mean(tf.square(outputs - y[start : start + size]))
        total.append(tape.gradient(loss, variables))
        if not is_first:
            for variable, value in zip(model.non_trainable_variables, before, strict=True):
                variable.assign(value)
        if len(total) == steps * replicas // group:
            gradients = [tf.add_n(each) for each in zip(*total, strict=True)]
            optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True)))
            total = []


def check(
    kit: Kit, build: Callable[[Kit], Any], steps: int, replicas: int, group: int, configured: int | None = None
) -> Any:
    plain = build(kit)
    x, y = made_data(plain.input_shape[1:], BATCH * steps * replicas * UPDATES)
    configure(replicas, configured or group)
    with IPUStrategy().scope():
        model = build(kit)
        model.compile(
            kit.keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"], steps_per_execution=2 * steps
        )
    model.set_weights(plain.get_weights())
    model.set_gradient_accumulation_options(steps)
    history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history
    train_in_plain_keras(kit, plain, x, y, steps, replicas, group)
    for received, expected in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, rtol=2e-5, atol=2e-5)
    assert np.isfinite(history["mae"][0])
    return model


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("build", "steps", "replicas", "group"),
    [(dense, 1, 2, 2), (convolution, 2, 2, 2), (convolution, 1, 4, 2), (dense, 2, 4, 4)],
)
def test_training(kit: Kit, build: Callable[[Kit], Any], steps: int, replicas: int, group: int) -> None:
    check(kit, build, steps, replicas, group)


def synchronized(kit: Kit) -> Any:
    """Layers that share statistics with all replicas by themselves."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((5, 5, 2))
    hidden = layers.BatchNormalization(momentum=0.8, synchronized=True)(layers.Conv2D(4, 3)(inputs))
    hidden = layers.Flatten()(layers.Activation("tanh")(hidden))
    hidden = layers.BatchNormalization(momentum=0.7, synchronized=True)(layers.Dense(6)(hidden))
    return kit.keras.Model(inputs, layers.Dense(3)(hidden))


@pytest.mark.parametrize(("steps", "replicas"), [(1, 2), (2, 3)])
def test_layers_that_synchronize_take_the_statistics_of_all_replicas(kit: Kit, steps: int, replicas: int) -> None:
    check(kit, synchronized, steps, replicas, replicas, configured=1)


def test_layers_that_synchronize_beside_groups(kit: Kit) -> None:
    """Moving means of a last step: of the first group's batches, and of those of all replicas."""
    replicas, group = 4, 2
    configure(replicas, group)
    layers = kit.keras.layers
    with IPUStrategy().scope():
        inputs = kit.keras.Input((5,))
        made = [layers.BatchNormalization(momentum=0.0, synchronized=each) for each in (False, True)]
        model = kit.keras.Model(inputs, layers.Dense(3)(layers.Concatenate()([layer(inputs) for layer in made])))
        model.compile("sgd", "mse")
    x, y = made_data((5,), BATCH * replicas)
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    for layer, together in zip(made, (group, replicas), strict=True):
        rows = x[: BATCH * together]
        np.testing.assert_allclose(layer.moving_mean, rows.mean(0), rtol=1e-5)
        np.testing.assert_allclose(layer.moving_variance, rows.var(0), rtol=1e-5)


def test_layers_that_synchronize_in_pipelines_are_refused(kit: Kit) -> None:
    configure(4, 1)
    layers = kit.keras.layers
    with IPUStrategy().scope():
        norm = layers.BatchNormalization(synchronized=True)
        model = kit.keras.Sequential([layers.Input((5,)), layers.Dense(4), norm, layers.Dense(3)])
        model.compile("sgd", "mse", steps_per_execution=4)
    set_stages(model, (0, 0, 1))
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    with pytest.raises(ValueError, match="in a pipelined Keras model.*synchronized=True"):
        model.fit(*made_data((5,), BATCH * 8), batch_size=BATCH, verbose=0)


@keras3_only
def test_training_with_masks(kit: Kit) -> None:
    check(kit, masked, 1, 2, 2)


@tf_keras_only
def test_halves_are_summed_in_float32(kit: Kit) -> None:
    """Means are 600: in halves, the sum over a group's elements would be infinite."""
    configure(2, 2)
    with IPUStrategy().scope():
        layer = kit.keras.layers.BatchNormalization(momentum=0.0, dtype="mixed_float16", input_shape=(4, 4, 1))
        model = kit.keras.Sequential([layer])
        model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(600.0, 2.0, (8, 4, 4, 1)).astype(np.float16)
    model.fit(x, np.zeros_like(x), batch_size=4, verbose=0)
    moving_mean, moving_variance = model.get_weights()[2:]
    wide = x.astype(np.float32)
    np.testing.assert_allclose(moving_mean, wide.mean(), rtol=1e-5)
    np.testing.assert_allclose(moving_variance, wide.var(ddof=1), rtol=1e-3)


def test_the_estimate_is_that_of_one_replica(kit: Kit) -> None:
    """A chip estimate counts one of the replicas that make their micro-batches together."""
    cycles = []
    for group in (1, 2):
        configure(2, group)
        with IPUStrategy().scope():
            model = convolution(kit)
            model.compile("sgd", "mse")
        model.fit(*made_data((5, 5, 2), BATCH * 2), batch_size=BATCH, verbose=0)
        cycles.append(chip_estimate(model).cycles)
    assert cycles[1] == pytest.approx(cycles[0], rel=0.1)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("replicas", "group"), [(4, 3), (2, 4), (1, 2)])
def test_groups_that_do_not_divide_are_refused_and_the_model_stays_usable(kit: Kit, replicas: int, group: int) -> None:
    configure(replicas, group)
    with IPUStrategy().scope():
        model = dense(kit)
        model.compile("sgd", "mse")
    x, y = made_data((5,), BATCH * replicas)
    with pytest.raises(ValueError, match=f"group_size to divide the number of replicas, {replicas}. Received: {group}"):
        model.fit(x, y, batch_size=BATCH, verbose=0)
    model.predict(x, batch_size=BATCH, verbose=0)
    configure(replicas, 1)
    model.fit(x, y, batch_size=BATCH, verbose=0)


@keras3_only
def test_pipelines_and_evaluation_in_training_mode_are_refused(kit: Kit) -> None:
    layers = kit.keras.layers

    class Always(layers.Layer):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.normalization = layers.BatchNormalization()

        def call(self, x: Any) -> Any:
            return self.normalization(x, training=True)

    configure(4, 2)
    with IPUStrategy().scope():
        model = kit.keras.Sequential([layers.Input((5,)), layers.Dense(4), Always(), layers.Dense(3)])
        model.compile("sgd", "mse", steps_per_execution=4)
    x, y = made_data((5,), BATCH * 8)
    with pytest.raises(ValueError, match="in fit alone"):
        model.evaluate(x, y, batch_size=BATCH, verbose=0)
    set_stages(model, (0, 0, 1))
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    with pytest.raises(ValueError, match="in a pipelined Keras model"):
        model.fit(x, y, batch_size=BATCH, verbose=0)


def test_functions_of_the_strategy(kit: Kit) -> None:
    """Fused operations, their gradient, and a layer; then the same functions with groups of another size."""
    replicas, x = 4, np.random.default_rng(2).normal(size=(8, 3, 3, 2)).astype(np.float32)
    gather = ipu.all_to_all_op.all_gather
    scale = np.random.default_rng(3).normal(size=(3, 3, 2)).astype(np.float32)
    strategy = IPUStrategy()
    with strategy.scope():
        layer = kit.keras.layers.BatchNormalization()
        layer.build((None, 3, 3, 2))

    def normalised(x: Any) -> Any:
        return tf.compat.v1.nn.fused_batch_norm(x, tf.ones(2), tf.zeros(2), is_training=True, epsilon=1e-3)[0]

    @tf.function(jit_compile=True)
    def function(x: Any) -> Any:
        mine = tf.reshape(x, (replicas, 2, 3, 3, 2))[ipu.replication_ops.replication_index()]
        with tf.GradientTape() as tape:
            tape.watch(mine)
            fused = normalised(mine)
            loss = tf.reduce_sum(tf.square(fused) * fused * scale)
        results = [fused, tape.gradient(loss, mine), layer(mine, training=True)]
        return [gather(each, replicas) for each in results]

    for group in (2, 4, 1):
        configure(replicas, group)
        received = [each.numpy().reshape(x.shape) for each in strategy.run(function, (x,))]
        for start in range(0, 8, 2 * group):
            rows = slice(start, start + 2 * group)
            part = tf.constant(x[rows])
            with tf.GradientTape() as tape:
                tape.watch(part)
                mean, variance = tf.nn.moments(part, (0, 1, 2))
                expected = (part - mean) * tf.math.rsqrt(variance + 1e-3)
                loss = tf.reduce_sum(expected**3 * scale)
            for one, other in zip(received, (expected, tape.gradient(loss, part), expected), strict=True):
                np.testing.assert_allclose(one[rows], other, rtol=2e-4, atol=2e-4)
