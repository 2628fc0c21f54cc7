"""Bad input and interruptions give a clear error or Keras' behaviour, and the model works afterwards."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError, UnsupportedOperation
from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, data, keras3_only

X, Y = data()


def still_works(model: Any) -> None:
    history = model.fit(X, Y, batch_size=8, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_run_eagerly_is_refused(kit: Kit, method: str) -> None:
    model = kit.ipu_model(run_eagerly=True)
    arguments = (X,) if method == "predict" else (X, Y)
    with pytest.raises(RuntimeError, match="run_eagerly") as caught:
        getattr(model, method)(*arguments, verbose=0)
    assert isinstance(caught.value, ConfigurationError)
    model.run_eagerly = False
    still_works(model)


def interrupting(keras: Any, error: BaseException) -> Any:
    def interrupt(batch: int, logs: Any) -> None:
        if batch == 1:
            raise error

    return keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk full")])
def test_interruption_in_a_callback(kit: Kit, keras: Any, error: BaseException) -> None:
    model, twin = kit.ipu_model(), kit.ipu_model()
    twin.set_weights(model.get_weights())
    with pytest.raises(type(error)):
        model.fit(X, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[interrupting(keras, error)])
    twin.fit(X[:16], Y[:16], batch_size=8, shuffle=False, verbose=0)
    for received, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)
    still_works(model)


def broken_dataset() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield X[:8], Y[:8]
    yield X[8:16], Y[8:16]
    raise OSError("cannot read the third batch")


class Broken:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index == 2:
            raise OSError("cannot read the third batch")
        return X[:8], Y[:8]


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_exception_in_the_data(kit: Kit, keras: Any, steps_per_execution: int) -> None:
    model = kit.ipu_model(steps_per_execution=steps_per_execution)
    sequence = type("Sequence", (Broken, keras.utils.Sequence), {})
    error = OSError if kit.is_keras3 else tf.errors.UnknownError
    with pytest.raises(error, match="third batch"):
        model.fit(broken_dataset(), steps_per_epoch=3, shuffle=False, verbose=0)
    with pytest.raises(error, match="third batch"):
        model.fit(sequence(), verbose=0)
    signature = (tf.TensorSpec([8, 5]), tf.TensorSpec([8], tf.int64))
    dataset = tf.data.Dataset.from_generator(broken_dataset, output_signature=signature)
    with pytest.raises(tf.errors.OpError, match="third batch"):
        model.fit(dataset, steps_per_epoch=3, shuffle=False, verbose=0)
    still_works(model)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (X[:0], Y[:0]),
        lambda: (tf.data.Dataset.from_tensor_slices((X[:0], Y[:0])).batch(8),),
        lambda: (iter_nothing(),),
    ],
)
def test_empty_data(kit: Kit, make: Callable[[], tuple[Any, ...]]) -> None:
    model = kit.ipu_model()
    expected = (ValueError, IndexError)  # Keras 3.13 reads the first batch of a generator without a look
    with pytest.raises(expected, match=r"(?i)empty|at least one|length 0|list index out of range"):
        model.fit(*make(), shuffle=False, verbose=0)
    still_works(model)


def iter_nothing() -> Iterator[Any]:
    yield from ()


def test_dataset_shorter_than_asked(kit: Kit) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    model = kit.ipu_model(steps_per_execution=2)
    says = pytest.warns(UserWarning, match="ran out of data") if kit.is_keras3 else contextlib.nullcontext()
    with says:
        history = model.fit(dataset, steps_per_epoch=5, epochs=2, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == (2 if kit.is_keras3 else 1)
    still_works(model)


@pytest.mark.parametrize("wrong", [X[:, :3], X[:, None, :], X.astype(str)])
def test_wrong_shapes_and_dtypes(kit: Kit, wrong: np.ndarray) -> None:
    model = kit.ipu_model()
    with pytest.raises((ValueError, UnsupportedOperation, RuntimeError)):  # the last one by Keras 3.13
        model.fit(wrong, Y, verbose=0)
    still_works(model)


def test_data_of_unequal_length(kit: Kit) -> None:
    model = kit.ipu_model()
    with pytest.raises(ValueError, match="ambiguous"):
        model.fit(X, Y[:-1], verbose=0)
    still_works(model)


def test_ragged_input_is_named(kit: Kit) -> None:
    ragged = tf.RaggedTensor.from_row_lengths(X[:6, 0], [1, 2, 3])
    with pytest.raises(UnsupportedOperation, match="RaggedTensor.*to_tensor"):
        kit.ipu_model(kit.unbuilt).predict_on_batch(ragged)


def test_operation_that_xla_refuses_is_named(kit: Kit, keras: Any) -> None:
    def build() -> Any:
        layers = keras.layers
        iteration = layers.RandomRotation(0.1, name="turn")
        return keras.Sequential([layers.Input((8, 8, 1)), iteration, layers.Flatten(), layers.Dense(3, "softmax")])

    model = kit.ipu_model(build)
    with pytest.raises(UnsupportedOperation, match="ImageProjectiveTransformV3.*turn.*tf.data") as raised:
        model.fit(np.zeros((8, 8, 8, 1), np.float32), Y[:8], verbose=0)
    assert str(raised.value).count("ImageProjectiveTransformV3") <= 2  # the operation, and in its path
    assert "XLA_CPU_JIT" not in str(raised.value) and "{{node" not in str(raised.value)


@pytest.mark.parametrize("labels", [["a", "b"] * 4, np.array([1, None] * 4)])
@keras3_only
def test_labels_that_are_no_numbers(kit: Kit, labels: Any) -> None:
    """Keras' error ends with the name of the dtype; here it ends with advice, without internal frames."""
    with IPUStrategy().scope():
        model = kit.keras.Sequential([kit.keras.Input((4,)), kit.keras.layers.Dense(3)])
        model.compile("adam", "mse", steps_per_execution=2)
    with pytest.raises(ValueError, match=r"of shape \(8,.* and dtype .*np\.unique\(labels") as raised:
        model.fit(np.ones((8, 4), np.float32), np.array(labels), batch_size=2, verbose=0)
    ours = [entry for entry in raised.traceback if "keras_ext" in str(entry.path)]
    assert all(entry.name in ("wrapped", "_run", "_run_method", "_check_numbers") for entry in ours)
    model.fit(np.ones((8, 4), np.float32), np.ones((8, 3)), batch_size=2, verbose=0)


@pytest.mark.parametrize("steps", [0, -1, 2.0, "3", None])
@keras3_only
def test_steps_per_execution_that_are_no_count(kit: Kit, steps: Any) -> None:
    """Plain Keras trains nothing with -1, and fails in `fit` with the others."""
    with IPUStrategy().scope():
        model = kit.sequential()
    with pytest.raises(
        ValueError, match=f"Expected steps_per_execution to be an integer of at least 1. Received: .?{steps}"
    ):
        model.compile("adam", "mse", steps_per_execution=steps)


def test_one_notice_for_a_partial_batch(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    IPUConfig().configure_ipu_system()
    model = kit.ipu_model()
    with caplog.at_level(logging.WARNING, "ipu"):
        model.fit(X, Y.astype(np.int32), batch_size=7, epochs=2, verbose=0)
        model.evaluate(X, Y.astype(np.int32), batch_size=7, verbose=0)
    notices = [record for record in caplog.records if record.name == "ipu"]
    assert len(notices) == 1
    assert "reload" in notices[0].getMessage()


def test_model_created_outside_the_scope_is_plain(kit: Kit, keras: Any) -> None:
    strategy = IPUStrategy()
    keras.utils.set_random_seed(2)
    outside = kit.compiled(kit.Subclassed())
    with strategy.scope():
        received = outside.fit(X, Y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
        assert outside.predict(X, verbose=0).shape == (24, 3)
    keras.utils.set_random_seed(2)
    plain = kit.compiled(kit.Subclassed())
    expected = plain.fit(X, Y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
    np.testing.assert_array_equal(received["loss"], expected["loss"])
    assert type(outside.train_function).__module__ != "keras_ext.training"


def test_extensions_can_be_left_out(kit: Kit) -> None:
    with IPUStrategy(enable_keras_extensions=False).scope():
        model = kit.compiled(kit.sequential())
        still_works(model)
    assert type(model.train_function).__module__ != "keras_ext.training"


def test_one_strategy_for_another(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = kit.sequential()
        with IPUStrategy().scope():
            kit.compiled(model)
            still_works(model)
    with IPUStrategy().scope():
        still_works(model)


@pytest.mark.parametrize("labels", [(), (28,), (28, 1)])
@pytest.mark.parametrize("metrics", [[], ["accuracy"]])
def test_sparse_labels_for_sequences_are_as_in_plain_keras(kit: Kit, labels: tuple[int, ...], metrics: list) -> None:
    """A model on data [28, 1] has an output for each of 28 steps; the loss refuses one label for all of them."""
    generator = np.random.default_rng(1)
    x = generator.random((8, 28, 1), np.float32)
    y = generator.integers(0, 3, (8, *labels))

    def trained() -> Any:
        kit.keras.utils.set_random_seed(4)
        model = kit.keras.Sequential([kit.keras.layers.Dense(4, "relu"), kit.keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=metrics)
        return model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history

    if labels:
        expected = trained()
        with IPUStrategy().scope():
            received = trained()
        assert set(received) == set(expected)
        for name in expected:
            np.testing.assert_allclose(received[name], expected[name], rtol=1e-5)
        return
    with pytest.raises(ValueError) as plain:
        trained()
    with pytest.raises(ValueError) as here, IPUStrategy().scope():
        trained()
    # tf_keras puts a traceback around the message where AutoGraph has converted its step.
    assert str(here.value).strip() in str(plain.value)
    assert ("target.shape=(4,)" if kit.is_keras3 else "labels.shape=(4,)") in str(here.value)


@pytest.mark.sample(2)
def test_an_update_outside_of_run_is_refused(kit: Kit) -> None:
    with IPUStrategy().scope():
        weight, optimizer = tf.Variable(1.0), kit.keras.optimizers.SGD(0.1)
        with pytest.raises(ConfigurationError, match=r"strategy\.run"):
            optimizer.apply_gradients([(tf.constant(1.0), weight)])
