"""Bad input and interruptions give a clear error or Keras' behaviour, and the model works afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError, UnsupportedOperation
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Subclassed, compiled, data, ipu_model, sequential, unbuilt

X, Y = data()


def still_works(model: keras.Model) -> None:
    history = model.fit(X, Y, batch_size=8, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_run_eagerly_is_refused(method: str) -> None:
    model = ipu_model(run_eagerly=True)
    arguments = (X,) if method == "predict" else (X, Y)
    with pytest.raises(RuntimeError, match="run_eagerly") as caught:
        getattr(model, method)(*arguments, verbose=0)
    assert isinstance(caught.value, ConfigurationError)
    model.run_eagerly = False
    still_works(model)


class Interrupting(keras.callbacks.Callback):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk full")])
def test_interruption_in_a_callback(error: BaseException) -> None:
    model, twin = ipu_model(), ipu_model()
    twin.set_weights(model.get_weights())
    with pytest.raises(type(error)):
        model.fit(X, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[Interrupting(error)])
    twin.fit(X[:16], Y[:16], batch_size=8, shuffle=False, verbose=0)
    for received, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)
    still_works(model)


def broken_dataset() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield X[:8], Y[:8]
    yield X[8:16], Y[8:16]
    raise OSError("cannot read the third batch")


class BrokenPyDataset(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index == 2:
            raise OSError("cannot read the third batch")
        return X[:8], Y[:8]


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_exception_in_the_data(steps_per_execution: int) -> None:
    model = ipu_model(steps_per_execution=steps_per_execution)
    with pytest.raises(OSError, match="third batch"):
        model.fit(broken_dataset(), shuffle=False, verbose=0)
    with pytest.raises(OSError, match="third batch"):
        model.fit(BrokenPyDataset(), verbose=0)
    signature = (tf.TensorSpec([8, 5]), tf.TensorSpec([8], tf.int64))
    dataset = tf.data.Dataset.from_generator(broken_dataset, output_signature=signature)
    with pytest.raises(tf.errors.OpError, match="third batch"):
        model.fit(dataset, shuffle=False, verbose=0)
    still_works(model)


class EmptyPyDataset(BrokenPyDataset):
    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: (X[:0], Y[:0]),
        lambda: (tf.data.Dataset.from_tensor_slices((X[:0], Y[:0])).batch(8),),
        lambda: (EmptyPyDataset(),),
        lambda: (iter_nothing(),),
    ],
)
def test_empty_data(make: Callable[[], tuple[Any, ...]]) -> None:
    model = ipu_model()
    with pytest.raises(ValueError, match=r"(?i)empty|at least one|length 0"):
        model.fit(*make(), shuffle=False, verbose=0)
    still_works(model)


def iter_nothing() -> Iterator[Any]:
    yield from ()


def test_dataset_shorter_than_asked() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    model = ipu_model(steps_per_execution=2)
    with pytest.warns(UserWarning, match="ran out of data"):
        history = model.fit(dataset, steps_per_epoch=5, epochs=2, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 2
    still_works(model)


@pytest.mark.parametrize("wrong", [X[:, :3], X[:, None, :], X.astype(str)])
def test_wrong_shapes_and_dtypes(wrong: np.ndarray) -> None:
    model = ipu_model()
    with pytest.raises((ValueError, UnsupportedOperation)):
        model.fit(wrong, Y, verbose=0)
    still_works(model)


def test_data_of_unequal_length() -> None:
    model = ipu_model()
    with pytest.raises(ValueError, match="ambiguous"):
        model.fit(X, Y[:-1], verbose=0)
    still_works(model)


def test_ragged_input_is_named() -> None:
    ragged = tf.RaggedTensor.from_row_lengths(X[:6, 0], [1, 2, 3])
    with pytest.raises(UnsupportedOperation, match="RaggedTensor.*to_tensor"):
        ipu_model(unbuilt).predict_on_batch(ragged)


def test_operation_that_xla_refuses_is_named() -> None:
    def build() -> keras.Model:
        layers = keras.layers
        turn = layers.RandomRotation(0.1, name="turn")
        return keras.Sequential([layers.Input((8, 8, 1)), turn, layers.Flatten(), layers.Dense(3, "softmax")])

    model = ipu_model(build)
    with pytest.raises(UnsupportedOperation, match="ImageProjectiveTransformV3.*turn.*tf.data"):
        model.fit(np.zeros((8, 8, 8, 1), np.float32), Y[:8], verbose=0)


def test_one_notice_for_a_partial_batch(caplog: pytest.LogCaptureFixture) -> None:
    model = ipu_model()
    with caplog.at_level(logging.WARNING, "ipu"):
        model.fit(X, Y, batch_size=7, epochs=2, verbose=0)
        model.evaluate(X, Y, batch_size=7, verbose=0)
    notices = [record for record in caplog.records if record.name == "ipu"]
    assert len(notices) == 1
    assert "reload" in notices[0].getMessage()


def test_model_created_outside_the_scope_is_plain() -> None:
    strategy = IPUStrategy()
    keras.utils.set_random_seed(2)
    outside = compiled(Subclassed())
    keras.utils.set_random_seed(2)
    plain = compiled(Subclassed())
    with strategy.scope():
        received = outside.fit(X, Y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
        assert outside.predict(X, verbose=0).shape == (24, 3)
    expected = plain.fit(X, Y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
    np.testing.assert_array_equal(received["loss"], expected["loss"])
    assert type(outside.train_function).__module__ != "keras_ext.training"


def test_extensions_can_be_left_out() -> None:
    with IPUStrategy(enable_keras_extensions=False).scope():
        model = compiled(sequential())
        still_works(model)
    assert type(model.train_function).__module__ != "keras_ext.training"


def test_one_strategy_for_another() -> None:
    with IPUStrategy().scope():
        model = sequential()
        with IPUStrategy().scope():
            compiled(model)
            still_works(model)
    with IPUStrategy().scope():
        still_works(model)
