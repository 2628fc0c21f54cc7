"""`ipu.accelerate`: the same numbers as plain Keras, on the engine, and with plain Keras where the engine refuses."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu
from engine.errors import UnsupportedOperation
from keras_ext.accelerated_methods import MODES, STEPS
from keras_ext.batch_hooks import see_batches
from keras_ext.training import StepFunction
from tests.keras.accelerated import assert_same_fit, both, in_float64
from tests.keras.helpers import Kit, assert_close, both_frameworks, data

LOSSES = {"optimizer": "sgd", "loss": "sparse_categorical_crossentropy", "jit_compile": False}


def refused(kit: Kit, training: bool | None = None) -> Any:
    """A model with an operation that the engine refuses, in training, in inference, or in both."""

    class Refused(kit.keras.layers.Layer):
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            scale = 1 + abs(tf.linalg.qr(tf.cast(inputs[:8, :2], tf.complex64))[0][0, 0]) if in_mode(training) else 1.0
            return inputs * scale

    def in_mode(now: bool | None) -> bool:
        return training is None or bool(now) is training

    layers = kit.keras.layers
    model = kit.keras.Sequential([layers.Input((5,)), Refused(), layers.Dense(3, "softmax")])
    model.compile(**LOSSES)
    return model


def test_models_built_in_it_run_on_the_engine(kit: Kit) -> None:
    x, y = data(100)
    plain, fast, acceleration = both(lambda: kit.compiled(kit.functional()))
    exact = in_float64(kit, lambda: kit.compiled(kit.functional()), plain)
    assert all(weight.dtype == np.float64 for weight in exact.get_weights())
    assert_same_fit(plain, fast, exact, x=x, y=y, batch_size=8, epochs=2, validation_data=(x, y))
    np.testing.assert_allclose(fast.predict(x, verbose=0), plain.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    assert all(isinstance(getattr(fast, f"{mode}_function"), StepFunction) for mode in ("train", "test", "predict"))
    assert acceleration.fallbacks == ()


@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize("source", ["arrays", "endless", "data set", "unknown length", "generator"])
def test_numbers_of_steps_are_kept_where_steps_are_chosen(kit: Kit, source: str) -> None:
    """A call of the engine takes up to 32 steps, but never more than an epoch, an evaluation or a prediction."""
    x, y = data(72)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)

    def generated() -> Iterator[Any]:
        while True:
            for first in range(0, 72, 8):
                yield x[first : first + 8], y[first : first + 8]

    def given() -> dict[str, Any]:
        if source == "arrays":
            return {"x": x, "y": y, "batch_size": 8}
        sets = {"data set": rows, "endless": rows.repeat(), "unknown length": rows.filter(lambda x, y: True)}
        return {"x": generated() if source == "generator" else sets[source]}

    plain, fast, acceleration = both(lambda: kit.compiled(kit.sequential()))
    models, steps = (plain, fast), 37 if source in ("endless", "generator") else 4
    valid = {"validation_data": rows.repeat(), "validation_steps": 2, "epochs": 3, "verbose": 0}
    fits = [model.fit(**given(), **valid, steps_per_epoch=steps, shuffle=False).history for model in models]
    np.testing.assert_allclose(fits[1]["loss"], fits[0]["loss"], rtol=2e-5)
    np.testing.assert_allclose(fits[1]["val_loss"], fits[0]["val_loss"], rtol=2e-5)
    if source != "unknown length":  # at the end of the data plain Keras counts an update that it does not make
        assert int(plain.optimizer.iterations.numpy()) == int(fast.optimizer.iterations.numpy())
    evaluated = [model.evaluate(**given(), steps=2, verbose=0) for model in models]
    np.testing.assert_allclose(evaluated[1], evaluated[0], rtol=2e-5)
    predicted = []
    for model in models:
        inputs = given()
        inputs.pop("y", None)
        predicted.append(model.predict(**inputs, steps=2, verbose=0))
    np.testing.assert_allclose(predicted[1], predicted[0], rtol=2e-5, atol=1e-6)
    assert acceleration.fallbacks == ()


@both_frameworks
def test_validation_by_plain_keras_has_its_own_number_of_steps(kit: Kit) -> None:
    x, y = data(72)
    endless = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat()
    plain, fast, acceleration = both(lambda: refused(kit, training=False))
    valid = {"validation_data": endless, "validation_steps": 2, "epochs": 2}
    assert_same_fit(plain, fast, x=x, y=y, batch_size=8, **valid)
    assert [each.method for each in acceleration.fallbacks] == ["evaluate"]
    assert isinstance(fast.train_function, StepFunction)


@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_an_epoch_that_data_do_not_fill_goes_on_as_in_keras(kit: Kit) -> None:
    x, y = data(72)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    plain, fast, _ = both(lambda: kit.compiled(kit.sequential()))
    assert_same_fit(plain, fast, x=rows, steps_per_epoch=5, epochs=4)
    assert_same_fit(plain, fast, x=x, y=y, batch_size=8, steps_per_epoch=20, epochs=4)
    assert_same_fit(plain, fast, x=rows, steps_per_epoch=20, epochs=1)


def test_steps_are_chosen_unless_given_or_a_callback_sees_batches(kit: Kit) -> None:
    x, y = data(80)

    class Batches(kit.keras.callbacks.Callback):
        count = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.count += 1

    with ipu.accelerate():
        chosen, given = kit.compiled(kit.sequential()), kit.compiled(kit.sequential(), steps_per_execution=5)

    def steps(model: Any) -> int:
        return int(model.steps_per_execution if kit.is_keras3 else model._steps_per_execution.numpy())

    seen = Batches()
    given.fit(x, y, batch_size=8, verbose=0, callbacks=[seen])
    assert (steps(given), seen.count) == (5, 2)
    chosen.fit(x, y, batch_size=8, verbose=0, callbacks=[kit.keras.callbacks.EarlyStopping("loss")])
    assert steps(chosen) == STEPS
    seen = Batches()
    chosen.fit(x, y, batch_size=8, verbose=0, callbacks=[seen], validation_data=(x, y))
    assert (steps(chosen), seen.count) == (1, 10)


def test_plain_keras_runs_what_the_engine_refuses(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    x, y = data(80)
    plain, fast, acceleration = both(lambda: refused(kit))
    with caplog.at_level(logging.WARNING, "ipu"):
        for _ in range(2):
            assert_same_fit(plain, fast, x=x, y=y, batch_size=8, epochs=2, validation_data=(x, y))
    assert [(each.model, each.method) for each in acceleration.fallbacks] == [(fast.name, "fit")]
    assert f"{fast.name!r} runs fit with plain Keras: " in caplog.text
    assert caplog.text.count("'Qr'") == 1
    assert fast.train_on_batch(x[:8], y[:8]) == pytest.approx(plain.train_on_batch(x[:8], y[:8]), rel=1e-5)


@pytest.mark.parametrize("wrong", ["text", "ragged", "rank"])
def test_the_engine_runs_calls_after_one_with_wrong_data(kit: Kit, wrong: str) -> None:
    x, y = data()
    with ipu.accelerate() as acceleration:
        model = kit.sequential()
        model.compile("sgd", "sparse_categorical_crossentropy")
    no_numbers = {"text": np.array([["a"] * x.shape[1]] * len(x)), "rank": np.zeros((len(x), 2, 5), np.float32)}
    refused = no_numbers.get(wrong, tf.RaggedTensor.from_row_lengths(np.ravel(x), [x.shape[1]] * len(x)))
    calls = {
        "fit": lambda x: model.fit(x, y, verbose=0),
        "evaluate": lambda x: model.evaluate(x, y, verbose=0),
        "predict": lambda x: model.predict(x, verbose=0),
        "train_on_batch": lambda x: model.train_on_batch(x, y),
        "predict_on_batch": lambda x: model.predict_on_batch(x),
    }
    for name, call in calls.items():
        for _ in range(2):
            with contextlib.suppress(Exception):
                call(refused)
        call(x)
        function = getattr(model, f"{MODES[name]}_function")
        assert isinstance(function, StepFunction) and function.calls, name
    assert len(acceleration.fallbacks) <= 2 * len(calls)


def test_data_that_are_refused_again_keep_the_functions_of_plain_keras(kit: Kit) -> None:
    keras = kit.keras
    words = np.array([["a"], ["b"]] * 8, object)

    class Length(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return tf.cast(tf.strings.length(inputs), tf.float32)

    with ipu.accelerate() as acceleration:
        model = keras.Sequential([keras.layers.Input((1,), dtype="string"), Length(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    targets = np.ones((16, 1), np.float32)
    model.train_on_batch(tf.constant(words), targets)
    made = model.train_function
    for _ in range(2):
        model.train_on_batch(tf.constant(words[:8]), targets[:8])
        model.fit(tf.constant(words), targets, verbose=0)
        assert model.train_function is made
    assert [each.method for each in acceleration.fallbacks] == ["train_on_batch"]


def test_plain_keras_runs_eagerly(kit: Kit) -> None:
    x, y = data(40)

    def make() -> Any:
        model = kit.keras.Sequential([kit.keras.layers.Input((5,)), kit.keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
        return model

    plain, fast, acceleration = both(make)
    assert_same_fit(plain, fast, x=x, y=y, batch_size=8, validation_data=(x, y))
    assert [each.method for each in acceleration.fallbacks] == ["fit"]


def test_training_stays_on_the_engine_where_evaluation_is_refused(kit: Kit) -> None:
    x, y = data(80)
    plain, fast, acceleration = both(lambda: refused(kit, training=False))
    assert_same_fit(plain, fast, x=x, y=y, batch_size=8, epochs=3, validation_data=(x, y))
    assert [each.method for each in acceleration.fallbacks] == ["evaluate"]
    assert isinstance(fast.train_function, StepFunction) and fast.train_function.calls
    assert fast.evaluate(x, y, verbose=0) == pytest.approx(plain.evaluate(x, y, verbose=0), rel=1e-5)


def refused_if_partial(kit: Kit, **options: Any) -> Any:
    """A model that the engine refuses for batches of fewer than 8 samples."""

    class RefusedIfPartial(kit.keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            is_partial = inputs.shape[0] is not None and inputs.shape[0] < 8
            return (
                inputs + 0 * abs(tf.linalg.qr(tf.cast(inputs[:2, :2], tf.complex64))[0][0, 0]) if is_partial else inputs
            )

    layers = kit.keras.layers
    model = kit.keras.Sequential([layers.Input((5,)), RefusedIfPartial(), layers.Dense(3, "softmax")])
    model.compile(**{**LOSSES, "optimizer": kit.keras.optimizers.Adam(0.01)}, metrics=["accuracy"], **options)
    return model


def test_plain_keras_runs_batches_of_a_shape_that_is_refused_after_others(kit: Kit) -> None:
    x, y = data(84)
    plain, fast, acceleration = both(lambda: refused_if_partial(kit))
    for _ in range(2):
        assert_same_fit(plain, fast, x=x, y=y, batch_size=8, epochs=2, validation_data=(x, y), validation_batch_size=8)
    expected = plain.predict(x, batch_size=8, verbose=0)
    np.testing.assert_allclose(fast.predict(x, batch_size=8, verbose=0), expected, rtol=1e-5, atol=1e-6)
    assert [each.method for each in acceleration.fallbacks] == ["fit", "evaluate", "predict"]
    assert isinstance(fast.train_function, StepFunction) and fast.train_function.calls
    assert int(fast.optimizer.iterations.numpy()) == int(plain.optimizer.iterations.numpy()) == 44


def test_plain_keras_continues_where_a_recompiled_function_is_refused(kit: Kit) -> None:
    """Epochs that have run are not trained again."""
    refuses: list[int] = []

    class Refused(kit.keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs + 0 * abs(tf.linalg.qr(tf.cast(inputs[:2, :2], tf.complex64))[0][0, 0]) if refuses else inputs

    class Unfreezes(kit.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                refuses.append(epoch)
                self.model.make_train_function(force=True)

    def make() -> Any:
        model = kit.keras.Sequential([kit.keras.layers.Input((5,)), Refused(), kit.keras.layers.Dense(3, "softmax")])
        model.compile(**LOSSES)
        return model

    plain, fast, acceleration = both(make)
    x, y = data(80)
    histories = []
    for model in (plain, fast):
        refuses.clear()
        fitted = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[Unfreezes()])
        histories.append(fitted.history["loss"])
    np.testing.assert_allclose(histories[1], histories[0], rtol=2e-5)
    assert int(fast.optimizer.iterations.numpy()) == 30 and [each.method for each in acceleration.fallbacks] == ["fit"]


@pytest.mark.filterwarnings("ignore:.*(ran out of data|was provided as a generator)")
def test_a_shape_that_is_refused_later_is_an_error_where_an_update_takes_several_batches(kit: Kit) -> None:
    """A plain step takes one batch, and would leave out the other batches of its update."""
    x, y = data(48)

    def batches() -> Iterator[Any]:
        for first, size in ((0, 8), (8, 8), (16, 4), (20, 4)):
            yield x[first : first + size], y[first : first + size]

    _, fast, _ = both(lambda: refused_if_partial(kit, steps_per_execution=2))
    fast.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
    with pytest.raises(UnsupportedOperation) as raised:
        fast.fit(batches(), steps_per_epoch=4, verbose=0)
    assert "an update takes several batches" in raised.value.__notes__[-1]
    fast.fit(x, y, batch_size=8, verbose=0)
    assert int(fast.optimizer.iterations.numpy()) == 1 + 3


@pytest.mark.filterwarnings("ignore:.*(ran out of data|was provided as a generator)")
def test_a_generator_loses_no_batch_to_a_refusal(kit: Kit) -> None:
    x, y = data(80)

    def batches() -> Iterator[Any]:
        for first in range(0, 80, 8):
            yield x[first : first + 8], y[first : first + 8]

    plain, fast, acceleration = both(lambda: refused(kit))
    for model in (plain, fast):
        model.fit(batches(), verbose=0)
    assert len(acceleration.fallbacks) == 1
    for expected, actual in zip(plain.get_weights(), fast.get_weights(), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_every_method_for_batches_is_seen_whatever_the_class_is_called(kit: Kit, tmp_path: Any) -> None:
    """Methods are compared with those of Keras' own classes."""
    keras, seen = kit.keras, []

    class Callback(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(batch)
            self.model.optimizer.learning_rate = 0.1 / (1 + batch)

    class Inherits(Callback):
        pass

    class Checkpoint(keras.callbacks.ModelCheckpoint):
        def _should_save_on_batch(self, batch: int) -> bool:
            seen.append(batch)
            return False

    def on_instance() -> Any:
        callback = keras.callbacks.Callback()
        callback.on_train_batch_end = lambda batch, logs=None: seen.append(batch)
        return callback

    x, y = data(40)
    makers = (
        *(Callback, Inherits, on_instance),
        lambda: [[keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: seen.append(batch))]],
        lambda: keras.callbacks.CallbackList([Callback()], add_history=True, epochs=1, steps=5, verbose=0),
        lambda: Checkpoint(str(tmp_path / "unused.keras")),
    )
    for make in makers if kit.is_keras3 else makers[:-1]:
        plain, fast, _ = both(lambda: kit.compiled(kit.sequential()))
        numbers = []
        for model in (plain, fast):
            seen.clear()
            callbacks = make()
            if hasattr(callbacks, "add_history") or isinstance(callbacks, keras.callbacks.CallbackList):
                callbacks.set_model(model)
            model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=callbacks)
            numbers.append([list(seen), *model.get_weights()])
        assert numbers[0][0] == [0, 1, 2, 3, 4]
        assert_close(numbers[1], numbers[0])


def test_callbacks_by_epoch_leave_the_steps(kit: Kit, tmp_path: Any) -> None:
    callbacks = kit.keras.callbacks
    idle = [
        callbacks.ModelCheckpoint(str(tmp_path / "kept.keras")),
        callbacks.BackupAndRestore(str(tmp_path / "backup")),
        *(callbacks.TensorBoard(str(tmp_path / "logs")), callbacks.CSVLogger(str(tmp_path / "log.csv"))),
        *(callbacks.EarlyStopping("loss"), callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None)),
    ]
    assert not see_batches(idle)
    by_batch = [
        callbacks.ModelCheckpoint(str(tmp_path / "kept.keras"), save_freq=2),
        callbacks.TensorBoard(str(tmp_path / "logs"), update_freq=1),
        *(callbacks.TensorBoard(str(tmp_path / "logs"), profile_batch=2), callbacks.TerminateOnNaN()),
    ]
    assert all(map(see_batches, by_batch))
