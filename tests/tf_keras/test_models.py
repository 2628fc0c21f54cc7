"""Features of tf_keras models that Keras 3 models lack: AutoGraph, counters, SavedModels, stateful layers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from ipu.ipu_strategy import IPUStrategy
from keras_ext.extensions import PipelineStage
from keras_ext.training import StepFunction
from tests.keras.helpers import Kit, data
from tests.strategy.helpers import replicas

X, Y = data()


def fitted(model: Any) -> Any:
    return model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history


def test_autograph_converts_calls(kit: Kit) -> None:
    class Branching(kit.Subclassed):
        def call(self, inputs: Any, training: bool = False) -> Any:
            if tf.reduce_sum(inputs) > 0:
                inputs = inputs * 2
            for _ in tf.range(3):
                inputs += 0.1
            return super().call(inputs)

    kit.assert_same(fitted, Branching)


def test_autograph_converts_layers_in_stages() -> None:
    class Branching(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            if tf.reduce_sum(inputs) > 0:
                inputs = inputs * 2
            return inputs

    class Inner(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Branching(), Branching()

        def call(self, inputs: Any) -> Any:
            with PipelineStage(0):
                inputs = self.first(inputs)
            with PipelineStage(1):
                return self.second(inputs)

    class Outer(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = Inner(), Branching()

        def call(self, inputs: Any) -> Any:
            inputs = self.inner(inputs)
            with PipelineStage(1):
                return self.last(inputs)

    replicas(2)
    with IPUStrategy().scope():
        model = Outer()
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile(steps_per_execution=4)
        x = np.array([[1.0], [2.0], [-3.0], [-4.0]] * 2, np.float32)
        results = model.predict(x, batch_size=2, verbose=0)
    np.testing.assert_array_equal(results, np.where(x > 0, 8 * x, x))


def test_counters(kit: Kit) -> None:
    model = kit.ipu_model(steps_per_execution=2)
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    model.evaluate(X, Y, batch_size=8, verbose=0)
    model.predict(X, batch_size=7, verbose=0)
    counters = (model._train_counter, model._test_counter, model._predict_counter)
    assert [int(counter) for counter in counters] == [6, 3, 4]


def test_steps_per_execution_can_change(kit: Kit) -> None:
    model = kit.ipu_model(steps_per_execution=3)
    ends: list[int] = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch))
    model.fit(X, Y, batch_size=6, verbose=0, callbacks=[count])
    model.steps_per_execution = 2
    model.fit(X, Y, batch_size=6, verbose=0, callbacks=[count])
    assert ends == [2, 3, 1, 3]


def test_several_steps_per_execution_on_batch(kit: Kit) -> None:
    model = kit.ipu_model(steps_per_execution=4)
    assert len(model.train_on_batch(X, Y)) == len(model.test_on_batch(X, Y)) == 2
    assert model.predict_on_batch(X).shape == (24, 3)


def test_saved_model(kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model(kit.functional)
    fitted(model)
    model.save(tmp_path / "model", save_format="tf")
    expected = model.predict(X, verbose=0)
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "model").predict(X, verbose=0), expected, atol=1e-6)
    with IPUStrategy().scope():
        loaded = keras.models.load_model(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict(X, verbose=0), expected, atol=1e-6)
    assert isinstance(loaded.predict_function, StepFunction)
    before = loaded.get_weights()[0]
    assert np.isfinite(fitted(loaded)["loss"]).all()
    assert not np.array_equal(loaded.get_weights()[0], before)


def test_copies(kit: Kit) -> None:
    model = kit.ipu_model(kit.functional)
    fitted(model)
    with IPUStrategy().scope():
        clone = keras.models.clone_model(model)
        clone.set_weights(model.get_weights())
        kit.compiled(clone)
    twin = copy.deepcopy(model)
    expected = model.predict(X, verbose=0)
    np.testing.assert_array_equal(clone.predict(X, verbose=0), expected)
    np.testing.assert_allclose(twin.predict(X, verbose=0), expected, atol=1e-6)
    assert isinstance(clone.predict_function, StepFunction)


def test_batch_normalization_statistics(kit: Kit) -> None:
    def build() -> Any:
        layers = keras.layers
        return keras.Sequential(
            [layers.Input((4, 4, 2)), layers.BatchNormalization(), layers.Flatten(), layers.Dense(3, "softmax")]
        )

    images = np.random.default_rng(0).normal(2.0, 3.0, (24, 4, 4, 2)).astype(np.float32)
    kit.assert_same(lambda m: m.fit(images, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history, build)


def test_added_losses_and_metrics(kit: Kit) -> None:
    class Penalty(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(0.1 * tf.reduce_mean(inputs**2))
            self.add_metric(tf.reduce_mean(inputs), name="level")
            return inputs

    def build() -> Any:
        layers = keras.layers
        dense = layers.Dense(6, kernel_regularizer=keras.regularizers.L2(0.01), kernel_constraint="max_norm")
        return keras.Sequential([layers.Input((5,)), dense, Penalty(), layers.Dense(3, "softmax")])

    kit.assert_same(fitted, build)


@pytest.mark.sample(1)
@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN])
def test_recurrent_layers(kit: Kit, layer: Any) -> None:
    sequences = np.random.default_rng(0).normal(size=(24, 7, 4)).astype(np.float32)

    def build() -> Any:
        return keras.Sequential([keras.layers.Input((7, 4)), layer(5), keras.layers.Dense(3, "softmax")])

    kit.assert_same(lambda m: m.fit(sequences, Y, batch_size=8, shuffle=False, verbose=0).history, build)


def test_dropout_drops_its_share(kit: Kit) -> None:
    class Ratio(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = keras.layers.Dropout(0.25)

        def predict_step(self, data: Any) -> Any:
            return self.dropout(data[0], training=True)

    with IPUStrategy().scope():
        model = Ratio()
    dropped = model.predict(np.ones((64, 500), np.float32), batch_size=32, verbose=0)
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.75)}
    # Four standard deviations of a binomial of 32000.
    assert abs((dropped == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / dropped.size)
    assert not np.array_equal(dropped[:32], dropped[32:])


def test_random_layers_of_a_second_strategy(kit: Kit) -> None:
    """A random generator works only under the strategy that it was made under."""
    for _ in range(2):
        with IPUStrategy().scope():
            layers = keras.layers
            model = kit.compiled(
                keras.Sequential([layers.Input((5,)), layers.Dropout(0.5, seed=1), layers.Dense(3, "softmax")])
            )
        fitted(model)


def test_custom_loop_with_an_optimizer(kit: Kit) -> None:
    strategy = IPUStrategy()
    with strategy.scope():
        model = kit.sequential()
        optimizer = keras.optimizers.Adam(0.01)

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = [float(strategy.run(step, args=(X, Y))) for _ in range(20)]
    assert losses[-1] < losses[0] and int(optimizer.iterations) == 20


def test_recurrent_layers_keep_their_states(kit: Kit) -> None:
    """Keras refuses `stateful=True` under other strategies."""
    x, y = np.random.default_rng(2).normal(size=(12, 3, 5)).astype(np.float32), np.arange(12) % 3

    def build() -> Any:
        inputs = keras.Input(batch_shape=(4, 3, 5))
        return keras.Model(inputs, keras.layers.Dense(3, "softmax")(keras.layers.GRU(4, stateful=True)(inputs)))

    def program(model: Any) -> Any:
        history = model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history
        first = model.predict(x, batch_size=4, verbose=0)
        model.reset_states()
        return history, first, model.predict(x, batch_size=4, verbose=0)

    kit.assert_same(program, build)


def test_losses_average_in_steps_of_the_user(kit: Kit) -> None:
    # Keras refuses these losses under other strategies, so only a plain program would fail.
    class Stepping(kit.Subclassed):
        def train_step(self, batch: Any) -> dict[str, Any]:
            inputs, targets = batch
            with tf.GradientTape() as tape:
                loss = keras.losses.SparseCategoricalCrossentropy()(targets, self(inputs, training=True))
            self.optimizer.minimize(loss, self.trainable_variables, tape)
            return {"loss": loss}

    kit.assert_same(fitted, Stepping)
