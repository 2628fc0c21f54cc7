"""Whole Keras programs give the same history, predictions and weights on the IPU as on plain Keras."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from ipu.ipu_strategy import IPUStrategy
from tests.exploring import sample
from tests.keras.helpers import MODELS, Kit, both_frameworks, data

X, Y = data()


def whole_life(model: Any) -> list[Any]:
    """Fits with a remainder of steps and a partial batch, then does everything else one does with a model."""
    history = model.fit(X, Y, batch_size=7, epochs=2, shuffle=False, verbose=0, validation_data=data(10, seed=1))
    results = [history.history, model.evaluate(X, Y, batch_size=7, verbose=0, return_dict=True)]
    results.append(model.predict(X, batch_size=7, verbose=0))
    if isinstance(model, tf_keras.Model):
        # With more than one step per execution, tf_keras on TensorFlow asks for more than the one batch.
        model.compile("sgd", model.loss, steps_per_execution=1, run_eagerly=model.run_eagerly)
    results.append(model.train_on_batch(X[:4], Y[:4], return_dict=True))
    results.append(model.test_on_batch(X[:4], Y[:4]))
    return [*results, model.predict_on_batch(X[:3])]


# Keras counts steps in the same way for all kinds of model.
@pytest.mark.sample(2)
@pytest.mark.parametrize(("steps_per_execution", "build"), [(1, "functional"), *((3, build) for build in MODELS)])
def test_kinds_of_model(kit: Kit, steps_per_execution: int, build: str) -> None:
    kit.assert_same(whole_life, getattr(kit, build), steps_per_execution=steps_per_execution)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "AdamW", "Adagrad", "Lion", "Nadam", "Ftrl"])
def test_optimizers(kit: Kit, keras: Any, name: str) -> None:
    if name == "Nadam" and not kit.is_keras3:
        pytest.skip("tf_keras' Nadam depends on how often TensorFlow has traced it: it counts in Python")

    def program(model: Any) -> Any:
        return model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history

    kit.assert_same(program, optimizer=lambda: getattr(keras.optimizers, name)(0.01), steps_per_execution=3)


def test_batch_normalization_of_one_row(kit: Kit, keras: Any) -> None:
    """Weights with gradients of exactly zero must stay: Adam would take whole steps along rounding errors."""

    def build() -> Any:
        layers, normalized = keras.layers, keras.layers.BatchNormalization
        hidden = [layers.Dense(6), normalized(), layers.Activation("relu"), layers.Dense(4), normalized()]
        return keras.Sequential([layers.Input((X.shape[1],)), *hidden, layers.Dense(3, "softmax")])

    def program(model: Any) -> Any:
        return model.fit(X[:6], Y[:6], batch_size=1, shuffle=False, verbose=0).history

    for name in sample(("RMSprop", "Adam"), 1):
        kit.assert_same(program, build, optimizer=lambda name=name: getattr(keras.optimizers, name)(0.01))


def test_relu_of_sums_of_zeros(kit: Kit, keras: Any) -> None:
    """The derivative is 0 where an image and the biases are 0: such sums must be exactly 0, whatever the algorithm."""

    def build() -> Any:
        layers = keras.layers
        hidden = [layers.Conv2D(n, 3, activation="relu", padding="same") for n in (16, 24, 16)]
        last = layers.MaxPooling2D(8), layers.Flatten(), layers.Dense(3, "softmax")
        return keras.Sequential([layers.Input((24, 24, 1)), *hidden, *last])

    images = np.zeros((8, 24, 24, 1), np.float32)
    images[:, 9:15, 6:13] = np.random.default_rng(0).normal(size=(8, 6, 7, 1))

    def program(model: Any) -> Any:
        return model.train_on_batch(images, Y[:8])

    kit.assert_same(program, build, optimizer=lambda: keras.optimizers.SGD(1.0))


@pytest.mark.sample(2)
def test_fits_that_go_on_inside_of_an_epoch(kit: Kit, keras: Any, tmp_path: Path) -> None:
    """tf_keras goes on with the first batch of a pass, and the epoch after it where that pass is then."""

    class Stop(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                raise RuntimeError("stop")

    def program(model: Any) -> Any:
        backups = [keras.callbacks.BackupAndRestore(str(tmp_path / str(id(model)) / "backup"), save_freq=2)]
        arguments = {"batch_size": 4, "epochs": 3, "shuffle": False, "verbose": 0}
        with pytest.raises(RuntimeError, match="stop"):
            model.fit(X, Y, callbacks=[*backups, Stop()], **arguments)
        return model.fit(X, Y, callbacks=backups, **arguments).history

    kit.assert_same(program)


def test_learning_rate_schedules(kit: Kit, keras: Any) -> None:
    def program(model: Any) -> Any:
        halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
        return model.fit(X, Y, epochs=3, batch_size=8, shuffle=False, verbose=0, callbacks=[halve]).history

    kit.assert_same(program)
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    kit.assert_same(lambda m: m.fit(X, Y, batch_size=4, shuffle=False, verbose=0).history,
                optimizer=lambda: keras.optimizers.SGD(decay), steps_per_execution=4)  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("labels", ["sparse", "column", "one_hot"])
def test_class_weight(kit: Kit, labels: str) -> None:
    y = {"sparse": Y, "column": Y[:, None], "one_hot": np.eye(3, dtype=np.float32)[Y]}[labels]
    loss = "categorical_crossentropy" if labels == "one_hot" else "sparse_categorical_crossentropy"

    def program(model: Any) -> Any:
        weights = {0: 0.5, 1: 1.0, 2: 4.0}
        history = model.fit(X, y, batch_size=8, shuffle=False, verbose=0, class_weight=weights).history
        return history, model.train_on_batch(X[:8], y[:8], class_weight=weights)

    kit.assert_same(program, loss=loss, weighted_metrics=["accuracy"])


@both_frameworks
def test_sample_weight_and_validation_split(kit: Kit) -> None:
    weights = np.linspace(0, 2, len(X))

    def program(model: Any) -> Any:
        history = model.fit(
            X,
            Y,
            sample_weight=weights,
            validation_split=0.25,
            batch_size=5,
            epochs=2,
            shuffle=False,
            verbose=0,
        )
        return history.history, model.evaluate(X, Y, sample_weight=weights, verbose=0)

    kit.assert_same(program, weighted_metrics=["accuracy"], steps_per_execution=2)


@both_frameworks
def test_several_inputs_and_outputs(kit: Kit, keras: Any) -> None:
    def build() -> Any:
        one, two = keras.Input((5,), name="one"), keras.Input((2,), name="two")
        joined = keras.layers.Concatenate()([one, two])
        outputs = {"a": keras.layers.Dense(1, name="a")(joined), "b": keras.layers.Dense(2, name="b")(joined)}
        return keras.Model({"one": one, "two": two}, outputs)

    inputs = {"two": X[:, :2], "one": X}
    targets = {"a": X[:, :1], "b": X[:, 2:4]}

    def program(model: Any) -> Any:
        # A partial batch would differ: Keras averages the outputs' losses over batches, the engine over samples.
        history = model.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0).history
        return (
            history,
            model.evaluate(inputs, targets, verbose=0),
            model.predict(inputs, batch_size=9, verbose=0),
        )

    kit.assert_same(program, build, loss={"a": "mse", "b": "mae"}, metrics=None, steps_per_execution=2)


def test_predict_keeps_outputs_without_features(kit: Kit, keras: Any) -> None:
    def build() -> Any:
        inputs = keras.Input((5,))
        return keras.Model(inputs, keras.layers.Lambda(lambda x: tf.reduce_sum(x, axis=1))(inputs))

    kit.assert_same(lambda m: m.predict(X, batch_size=7, verbose=0), build, steps_per_execution=2)


@both_frameworks
def test_tf_data_sources(kit: Kit) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(7)

    def program(model: Any) -> Any:
        history = model.fit(dataset, epochs=2, shuffle=False, verbose=0, validation_data=dataset).history
        endless = dataset.repeat()
        more = model.fit(endless, shuffle=False, epochs=2, steps_per_epoch=3, verbose=0).history
        return history, more, model.evaluate(dataset, verbose=0), model.predict(dataset, verbose=0)

    kit.assert_same(program, steps_per_execution=3)


def test_tf_data_class_weight(kit: Kit) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    kit.assert_same(lambda m: m.fit(dataset, class_weight={0: 1.0, 1: 1.0, 2: 3.0}, shuffle=False, verbose=0).history)


class Batches:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        span = slice(index * 7, index * 7 + 7)
        return X[span], Y[span]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kit", "workers"),
    # tf_keras waits five seconds for the second worker's end, on TensorFlow as well.
    [("keras", 1), ("keras", 2), ("tf_keras", 1), pytest.param("tf_keras", 2, marks=pytest.mark.explore)],
    indirect=["kit"],
)
def test_sequences(kit: Kit, keras: Any, workers: int) -> None:
    sequence = type("Sequence", (Batches, keras.utils.Sequence), {})

    def program(model: Any) -> Any:
        if kit.is_keras3:
            history = model.fit(sequence(workers=workers), epochs=2, shuffle=False, verbose=0).history
        else:
            history = model.fit(sequence(), workers=workers, epochs=2, shuffle=False, verbose=0).history
        return history, model.evaluate(sequence(), verbose=0), model.predict(sequence(), verbose=0)

    kit.assert_same(program, steps_per_execution=3)


@both_frameworks
def test_generator(kit: Kit) -> None:
    def batches() -> Any:
        while True:
            for start in range(0, 24, 8):
                yield X[start : start + 8], Y[start : start + 8]

    def program(model: Any) -> Any:
        return model.fit(batches(), shuffle=False, steps_per_epoch=3, epochs=2, verbose=0).history

    kit.assert_same(program, kit.unbuilt, steps_per_execution=2)


def test_integers_and_other_dtypes(kit: Kit, keras: Any) -> None:
    def build() -> Any:
        return keras.Sequential(
            [
                keras.layers.Input((6,)),
                keras.layers.Embedding(10, 4),
                keras.layers.Flatten(),
                keras.layers.Dense(3, "softmax"),
            ]
        )

    tokens = np.random.default_rng(0).integers(0, 10, (24, 6), dtype=np.int64)
    kit.assert_same(lambda m: m.fit(tokens, Y, batch_size=8, shuffle=False, verbose=0).history, build)
    images = np.random.default_rng(0).integers(0, 256, (24, 5)).astype(np.uint8)
    kit.assert_same(
        lambda m: m.fit(images, Y.astype(np.int32), batch_size=8, shuffle=False, verbose=0).history,
        lambda: keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Dense(3, "softmax")]),
    )
    backward = X.astype(np.float64)[::-1], Y[::-1]
    kit.assert_same(lambda m: m.fit(*backward, batch_size=8, shuffle=False, verbose=0).history)


def test_duplicate_embedding_rows_add_up(kit: Kit, keras: Any) -> None:
    """Keras does not add them before a non-linear update, so the comparison uses plain SGD."""

    def build() -> Any:
        return keras.Sequential(
            [keras.layers.Input((6,)), keras.layers.Embedding(3, 4), keras.layers.Flatten(), keras.layers.Dense(3)]
        )

    tokens = np.zeros((8, 6), np.int32)
    targets = np.ones((8, 3), np.float32)
    kit.assert_same(lambda m: m.fit(tokens, targets, verbose=0).history, build, loss="mse", metrics=None,
                optimizer=lambda: keras.optimizers.SGD(0.1))  # fmt: skip


@both_frameworks
def test_custom_train_step(kit: Kit) -> None:
    class Custom(kit.Subclassed):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"twice": loss * 2, "constant": 3.0}

    kit.assert_same(lambda m: m.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history, Custom, metrics=None)


@pytest.mark.parametrize("calls", ["nothing", "the decoder"])
@pytest.mark.parametrize("built", [False, True])
@both_frameworks
def test_own_train_step_says_alone_what_is_computed(kit: Kit, keras: Any, calls: str, built: bool) -> None:
    """Models with their own step may have no `call`, or one that takes other data, as adversarial networks."""
    if not built and not kit.is_keras3:
        pytest.skip("Keras draws the weights of layers that a step builds")

    class Autoencoder(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            shapes = [[keras.layers.Input((size,))] if built else [] for size in (5, 2)]
            dense = functools.partial(keras.layers.Dense, kernel_initializer=keras.initializers.Constant(0.3))
            self.encoder = keras.Sequential([*shapes[0], dense(2, "tanh")])
            self.decoder = keras.Sequential([*shapes[1], dense(5)])
            self.second = keras.optimizers.Adam(0.01)

        def train_step(self, x: Any) -> Any:
            x = x[0] if isinstance(x, tuple) else x
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean((self.decoder(self.encoder(x)) - x) ** 2)
            for part, optimizer in ((self.encoder, self.optimizer), (self.decoder, self.second)):
                variables = part.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return {"loss": loss}

    class Calling(Autoencoder):
        def call(self, code: Any) -> Any:
            return self.decoder(code)

    def program(model: Any) -> Any:
        history = model.fit(X, batch_size=8, epochs=2, shuffle=False, verbose=0).history
        return history, model.encoder.get_weights(), model.decoder.get_weights()

    kit.assert_same(program, Autoencoder if calls == "nothing" else Calling, loss=None, metrics=None)


@pytest.mark.parametrize("method", ["evaluate", "test_on_batch"])
@both_frameworks
def test_own_test_step_says_alone_what_is_tested(kit: Kit, method: str) -> None:
    """The compiled loss may not fit the data of the test step."""

    class Own(kit.Subclassed):
        def test_step(self, data: Any) -> Any:
            return {"mean": tf.reduce_mean(self(data[0], training=False) ** 2)}

    def program(model: Any) -> Any:
        options = {"verbose": 0} if method == "evaluate" else {}
        return getattr(model, method)(X, np.zeros((len(X), 7), np.float32), return_dict=True, **options)

    kit.assert_same(program, Own, loss="mse", metrics=None)


def test_an_optimizer_of_an_own_step_begins_at_the_weights_once(kit: Kit, keras: Any) -> None:
    """`build` copies the weights; TensorFlow's graphs lose the copies, so Keras runs eagerly here."""
    if not hasattr(keras.optimizers, "ScheduleFreeAdamW"):
        pytest.skip("this Keras has no ScheduleFreeAdamW")

    class Own(kit.Subclassed):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            self.second.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

    def trained(**arguments: Any) -> Any:
        model = Own()
        model(X[:1])
        model.set_weights([np.linspace(-1, 1, w.size).reshape(w.shape) for w in model.get_weights()])
        model.second = keras.optimizers.ScheduleFreeAdamW(0.02)
        model.compile("sgd", "sparse_categorical_crossentropy", **arguments)
        model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        return model.get_weights()

    expected = trained(run_eagerly=True)
    with IPUStrategy().scope():
        actual = trained(steps_per_execution=2)
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


def test_nan_in_data_trains_on(kit: Kit) -> None:
    broken = X.copy()
    broken[3, 2] = np.nan
    kit.assert_same(
        lambda m: m.fit(broken, Y, batch_size=8, shuffle=False, verbose=0).history, kit.unbuilt, metrics=None
    )


def test_early_stopping_restores_the_best_weights(kit: Kit, keras: Any) -> None:
    def program(model: Any) -> Any:
        stop = keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True, min_delta=0.05)
        return model.fit(X, Y, batch_size=8, epochs=8, shuffle=False, verbose=0,
                         validation_data=data(9, seed=5), callbacks=[stop]).history  # fmt: skip

    kit.assert_same(program, steps_per_execution=2)
