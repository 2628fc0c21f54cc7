"""Replicas: feeding, metrics, predictions, seeds, counts of steps, and everything that is refused."""

from __future__ import annotations

import logging
from typing import Any

import keras as keras_3
import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError, StepCountError
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, both_frameworks, data
from tests.keras.micro_batches import assert_same_weights, configure, ipu_twin, loss_of, network

BATCH = 4


def one_weight(kit: Kit, **compilation: Any) -> Any:
    """A model whose gradient is the mean of its inputs."""
    keras = kit.keras
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(0.1), lambda y, prediction: prediction, **compilation)
    model.set_weights([np.zeros((1, 1), np.float32)])
    return model


def test_gradients_of_replicas_are_summed_and_fed_in_turn(kit: Kit) -> None:
    configure(2)
    model = one_weight(kit)
    x = np.array([[1], [2]], np.float32)
    history = model.fit(x, x, batch_size=1, shuffle=False, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], [[-0.3]], rtol=1e-6)
    assert history.epoch == [0]


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_predictions_and_metrics_are_those_of_one_replica(kit: Kit, kind: str) -> None:
    x, y = data(BATCH * 6)
    plain = network(kit)
    plain.compile("sgd", loss_of(kit), metrics=["accuracy"])
    configure(3)
    model = ipu_twin(kit, plain, "sgd", steps_per_execution=2)
    if kind == "arrays":
        predicted = model.predict(x, batch_size=BATCH, verbose=0)
        evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0)
    else:
        predicted = model.predict(tf.data.Dataset.from_tensor_slices(x).batch(BATCH), verbose=0)
        evaluated = model.evaluate(tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH), verbose=0)
    np.testing.assert_allclose(predicted, plain.predict(x, batch_size=BATCH, verbose=0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(evaluated, plain.evaluate(x, y, batch_size=BATCH, verbose=0), rtol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_metrics_of_mixed_precision_are_those_of_all_replicas(kit: Kit, policy: str) -> None:
    keras, (x, y) = kit.keras, data(BATCH * 6)
    weights = np.random.default_rng(1).uniform(0.2, 2.0, len(x)).astype(np.float32)
    set_policy = keras.config.set_dtype_policy if kit.is_keras3 else keras.mixed_precision.set_global_policy
    set_policy(policy)
    histories = []
    try:
        for replicas in (1, 3):
            configure(replicas)
            keras.utils.set_random_seed(2)
            with IPUStrategy().scope():
                model = kit.sequential()
                model.compile(
                    keras.optimizers.SGD(0.0),
                    "sparse_categorical_crossentropy",
                    metrics=["accuracy"],
                    weighted_metrics=["sparse_categorical_accuracy"],
                )
            histories.append(model.fit(x, y, BATCH, sample_weight=weights, shuffle=False, verbose=0).history)
    finally:
        set_policy("float32")
    for name, expected in histories[0].items():
        np.testing.assert_allclose(histories[1][name], expected, rtol=1e-5)


def test_predict_of_two_batches_with_two_replicas_and_a_larger_execution(kit: Kit) -> None:
    configure(2)
    model = one_weight(kit, steps_per_execution=2)
    x = np.arange(4, dtype=np.float32)[:, None]
    assert model.predict(x, batch_size=2, verbose=0, steps=2).shape == (4, 1)


def test_steps_count_for_each_replica(kit: Kit) -> None:
    configure(2)
    model = one_weight(kit, steps_per_execution=2)
    ends: list[int] = []
    callback = kit.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch))
    x = np.ones((8, 1), np.float32)
    model.fit(x, x, batch_size=1, verbose=0, epochs=2, callbacks=[callback])
    assert ends == [1, 3, 1, 3]
    assert int(model.optimizer.iterations.numpy()) == 8
    assert callback.params["steps"] == 4


def test_batches_that_do_not_divide_are_left_out_and_said_so_once(
    kit: Kit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keras_ext.replication._warned", set())
    configure(2)
    model = one_weight(kit)
    x = np.ones((5, 1), np.float32)
    with caplog.at_level(logging.WARNING, logger="ipu"):
        for _ in range(2):
            model.fit(x, x, batch_size=1, verbose=0)
    assert caplog.text.count("1 of 5 batches are left out") == 1 and "4, 6" in caplog.text
    assert int(model.optimizer.iterations.numpy()) == 4


def test_too_few_batches_for_all_replicas(kit: Kit) -> None:
    configure(4)
    x = np.ones((3, 1), np.float32)
    with pytest.raises(StepCountError, match="at least one batch for each of 4 replicas. Received: .* 3"):
        one_weight(kit).fit(x, x, batch_size=1, verbose=0)


def test_a_partial_batch_is_refused(kit: Kit) -> None:
    configure(2)
    x = np.ones((7, 1), np.float32)
    with pytest.raises(StepCountError, match=r"batch of 3 samples after batches of 4.*drop_remainder=True"):
        one_weight(kit).fit(x, x, batch_size=4, verbose=0)
    with pytest.raises(StepCountError, match=r"batch of 3 samples after batches of 4.*drop_remainder=True"):
        one_weight(kit).fit(tf.data.Dataset.from_tensor_slices((x, x)).batch(4), shuffle=False, verbose=0)
    configure(1)
    model = one_weight(kit, steps_per_execution=2)
    model.set_gradient_accumulation_options(2)
    with pytest.raises(StepCountError, match=r"batch of 3 samples after batches of 4.*drop_remainder=True"):
        model.fit(x, x, batch_size=4, verbose=0)


def test_train_on_batch_has_no_batch_for_each_replica(kit: Kit) -> None:
    configure(2)
    x = np.ones((4, 1), np.float32)
    with pytest.raises(StepCountError, match="a multiple of 2 batches.*Received: 1. .*train_on_batch"):
        one_weight(kit).train_on_batch(x, x)


@pytest.mark.parametrize("source", ["dropout", "generator", "branch"])
def test_each_replica_draws_its_own_numbers(kit: Kit, source: str) -> None:
    keras = kit.keras
    configure(2)
    generator, seeds = tf.random.Generator.from_seed(3), keras_3.random.SeedGenerator(3)

    class Drawn(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            if source == "generator":
                drawn = generator.uniform([64])
            else:
                drawn = tf.cond(
                    tf.reduce_sum(x) > 0, lambda: keras_3.random.uniform([64], seed=seeds), lambda: tf.ones([64])
                )
            return 2 * x * tf.cast(drawn > 0.5, x.dtype)

    with IPUStrategy().scope():
        layer = keras.layers.Dropout(0.5) if source == "dropout" else Drawn()
        model = keras.Sequential([keras.layers.Input((64,)), layer, keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(1.0), lambda y, prediction: prediction)
    model.set_weights([np.zeros_like(w) if w.shape == (64, 1) else w for w in model.get_weights()])
    model.fit(np.ones((2, 64), np.float32), np.ones((2, 1)), batch_size=1, verbose=0)
    # A weight moves by 2 for each replica that does not drop its input: some by 2, if the masks differ.
    (kernel,) = (w for w in model.get_weights() if w.shape == (64, 1))
    assert set(np.unique(kernel)) == {-4.0, -2.0, 0.0}


@both_frameworks
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_a_count_that_a_layer_uses_is_each_replica_s_own(kit: Kit, dtype: str) -> None:
    keras = kit.keras

    class Counted(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.count = self.add_weight(name="count", shape=(), dtype=dtype, initializer="zeros", trainable=False)

        def call(self, x: Any) -> Any:
            self.count.assign(tf.convert_to_tensor(self.count) + 1)
            return x * tf.cast(tf.convert_to_tensor(self.count), x.dtype)

    configure(3)
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((1,)), Counted(), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(1.0), lambda y, prediction: prediction, steps_per_execution=4)
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    model.fit(np.ones((12, 1), np.float32), np.ones((12, 1)), batch_size=1, verbose=0)
    kernel, count = sorted(map(float, map(np.squeeze, model.get_weights())))
    assert (kernel, count) == (-3.0 * (1 + 2 + 3 + 4), 4)


def test_metrics_that_the_model_does_not_know_are_of_all_replicas(kit: Kit) -> None:
    keras = kit.keras
    configure(3)
    with IPUStrategy().scope():
        error, largest = keras.metrics.MeanAbsoluteError(), keras.metrics.Sum()

    class Own(keras.Sequential):
        @property
        def metrics(self) -> list[Any]:
            return []

        def train_step(self, batch: Any) -> Any:
            error.update_state(batch[1], self(batch[0]))
            largest.update_state(tf.reduce_max(batch[0]))
            return {**super().train_step(batch), "error": error.result()}

        def test_step(self, batch: Any) -> Any:
            error.update_state(batch[1], self(batch[0]))
            return {"error": error.result()}

    with IPUStrategy().scope():
        model = Own([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=2)
    x = np.random.default_rng(0).normal(size=(BATCH * 6, 4)).astype(np.float32)
    y = x[:, :1] + 1
    expected = np.abs(y - x @ model.get_weights()[0]).mean()
    logged = model.fit(x, y, BATCH, shuffle=False, verbose=0).history["error"][-1]
    np.testing.assert_allclose([logged, error.result()], [expected] * 2, rtol=1e-5)
    np.testing.assert_allclose(largest.result(), x.reshape(6, -1).max(1).sum(), rtol=1e-5)
    error.reset_state()
    evaluated = np.ravel(model.evaluate(x, y, BATCH, verbose=0))[-1]
    np.testing.assert_allclose([evaluated, error.result()], [expected] * 2, rtol=1e-5)


@pytest.mark.parametrize("replicas", [1, 3])
def test_metrics_of_functions_are_of_all_replicas(kit: Kit, replicas: int) -> None:
    keras, strategy = kit.keras, IPUStrategy()
    configure(replicas)
    numbers = np.random.default_rng(1).normal(size=replicas * 6).astype(np.float32)
    with strategy.scope():
        mean, count = keras.metrics.Mean(), keras.metrics.Sum()
        curve = keras.metrics.AUC(num_thresholds=7)
        elements = iter(tf.data.Dataset.from_tensor_slices(numbers).batch(1, drop_remainder=True))

        @tf.function(jit_compile=True)
        def program(elements: Any) -> Any:
            for _ in tf.range(2):
                x = next(elements)
                mean.update_state(x)
                count.update_state(1.0)
                curve.update_state(tf.cast(x > 0, tf.float32), tf.sigmoid(-x * x))
            return mean.result()

        seen = 0
        for run in range(3):
            own = strategy.run(program, args=(elements,))
            till = 2 * replicas * (run + 1)
            np.testing.assert_allclose(own, numbers[seen:till:replicas].mean(), rtol=1e-5)
            np.testing.assert_allclose(mean.result(), numbers[seen:till].mean(), rtol=1e-5)
            np.testing.assert_allclose(count.result(), till)
            if run == 1:
                mean.reset_state()
                seen = till
    whole = keras.metrics.AUC(num_thresholds=7)
    whole.update_state(numbers > 0, 1 / (1 + np.exp(numbers**2)))
    np.testing.assert_allclose(curve.result(), whole.result(), rtol=1e-5)


def test_a_metric_that_is_not_a_sum_is_refused(kit: Kit) -> None:
    keras = kit.keras

    class Largest(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="largest")
            self.largest = self.add_weight(name="largest", initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.largest.assign(tf.maximum(tf.reduce_max(y_pred), tf.convert_to_tensor(self.largest)))

        def result(self) -> Any:
            return self.largest

    configure(2)
    with IPUStrategy().scope():
        model = one_weight(kit, metrics=[Largest()])
    x = np.ones((4, 1), np.float32)
    with pytest.raises(ConfigurationError, match=r"updated by adding.*'[^']*largest[^']*'.*2 replicas"):
        model.fit(x, x, batch_size=1, verbose=0)
    configure(1)
    model.fit(x, x, batch_size=1, verbose=0)


def adversarial(kit: Kit) -> Any:
    """A model whose second gradient reads a weight that the step has updated."""
    keras = kit.keras

    class Adversarial(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(1, use_bias=False, name="first")
            self.second = keras.layers.Dense(1, use_bias=False, name="second")

        def call(self, x: Any) -> Any:
            return self.second(self.first(x))

        def train_step(self, batch: Any) -> Any:
            for layer in (self.first, self.second):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(self(batch[0]))
                gradients = tape.gradient(loss, [kit.variable(w) for w in layer.trainable_variables])
                self.optimizer.apply_gradients(list(zip(gradients, layer.trainable_variables, strict=True)))
            return {"loss": loss}

    with IPUStrategy().scope():
        model = Adversarial()
        model(np.zeros((1, 1), np.float32))
        model.compile(keras.optimizers.SGD(0.1))
        model.optimizer.build(model.trainable_variables)
    return model


def test_gradients_after_an_update_of_the_same_step_are_refused(kit: Kit) -> None:
    model = adversarial(kit)
    x = np.ones((4, 1), np.float32)
    model.fit(x, x, batch_size=1, verbose=0)
    configure(2)
    with pytest.raises(ConfigurationError, match="gradient of '.*kernel.*' depends on an update made earlier"):
        model.fit(x, x, batch_size=1, verbose=0)


def test_a_step_without_an_optimizer_is_refused(kit: Kit) -> None:
    keras = kit.keras

    class Idle(keras.Sequential):
        def train_step(self, batch: Any) -> Any:
            return {"loss": tf.reduce_mean(self(batch[0], training=True))}

    configure(2)
    with IPUStrategy().scope():
        model = Idle([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd")
    x = np.ones((4, 1), np.float32)
    with pytest.raises(ConfigurationError, match="applies gradients with a Keras optimizer"):
        model.fit(x, x, batch_size=1, verbose=0)


def test_another_configuration_makes_other_replicas(kit: Kit) -> None:
    x = np.ones((4, 1), np.float32)
    model = one_weight(kit)
    for replicas, updates in ((1, 4), (4, 1), (2, 2)):
        configure(replicas)
        before = int(model.optimizer.iterations.numpy())
        model.fit(x, x, batch_size=1, verbose=0)
        assert int(model.optimizer.iterations.numpy()) - before == updates


def test_validation_is_replicated_too(kit: Kit) -> None:
    x, y = data(BATCH * 4)
    plain = network(kit)
    plain.compile("sgd", loss_of(kit))
    configure(2)
    model = ipu_twin(kit, plain, kit.keras.optimizers.SGD(0.0))
    history = model.fit(x, y, batch_size=BATCH, validation_data=(x, y), shuffle=False, verbose=0).history
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(history["val_loss"], plain.evaluate(x, y, batch_size=BATCH, verbose=0), rtol=1e-5)
    assert_same_weights(model, plain)


@both_frameworks
def test_every_epoch_begins_with_the_first_batch_where_some_are_left_out(kit: Kit) -> None:
    keras, (x, y) = kit.keras, data(BATCH * 8)
    configure(3)
    weights = []
    for batches in (6, 8):
        keras.utils.set_random_seed(5)
        model = kit.ipu_model()
        rows = BATCH * batches
        model.fit(x[:rows], y[:rows], BATCH, epochs=3, shuffle=False, verbose=0)
        assert int(model.optimizer.iterations) == 6
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
