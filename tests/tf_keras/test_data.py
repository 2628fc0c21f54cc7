"""Arrays reach the engine as rows, with the epochs and steps that tf_keras makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from tf_keras.src.engine import data_adapter

from keras_ext.frameworks.tf_keras_data import ArrayRows, RepeatedRowBatches, data_handler
from tests.keras.helpers import Kit, assert_close, data

X, Y = data()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("steps_per_epoch", "batch_size", "steps_per_execution"),
    [(2, None, 1), (5, None, 2), (2, 8, 2), (3, 7, 2), (5, 7, 1), (5, 8, 2)],
)
def test_steps_per_epoch(kit: Kit, steps_per_epoch: int, batch_size: int | None, steps_per_execution: int) -> None:
    """An epoch continues where the last one stopped, until all requested passes are used up."""

    def program(model: Any) -> Any:
        seen: list[int] = []
        count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
        history = model.fit(
            X,
            Y,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            epochs=3,
            shuffle=False,
            verbose=0,
            callbacks=[count],
        )
        return history.history, seen

    kit.assert_same(program, steps_per_execution=steps_per_execution)


def test_shuffling_keeps_rows_together_and_leaves_none_out() -> None:
    numbers = np.arange(20, dtype=np.float32)
    handler = data_handler(numbers, -numbers, model=None, batch_size=6, shuffle=True, epochs=2)
    passes = []
    for _, iterator in handler.enumerate_epochs():
        batches = [next(iterator) for _ in handler.steps()]
        assert [len(x) for x, _ in batches] == [6, 6, 6, 2]
        for x, y in batches:
            np.testing.assert_array_equal(x, -y)
        passes.append(np.concatenate([x for x, _ in batches]))
    assert all(set(order) == set(numbers) for order in passes)
    assert not np.array_equal(*passes)


def test_arrays_are_not_copied() -> None:
    rows = RepeatedRowBatches(ArrayRows(X, Y).structure, 8, True, 1)
    feeds = iter(rows).take(3)[0].feeds
    assert feeds[0].array is X and feeds[1].array is Y
    assert sorted(feeds[0].rows) == list(range(24))


@pytest.mark.parametrize("convert", [tf.constant, lambda array: array.astype(np.float64)])
def test_other_array_types(kit: Kit, convert: Callable[[np.ndarray], Any]) -> None:
    x, y = convert(X), convert(Y)
    kit.assert_same(lambda m: m.fit(x, y, batch_size=8, shuffle=False, verbose=0).history)


def test_lists_of_numbers(kit: Kit) -> None:
    def program(model: Any) -> Any:
        history = model.fit(X.tolist(), Y.tolist(), batch_size=8, shuffle=False, verbose=0).history
        return history, model.predict(X.tolist(), verbose=0)

    kit.assert_same(program)


def test_weights_of_classes_and_samples_multiply(kit: Kit) -> None:
    """TensorFlow fails for both in tf_keras, so the reference multiplies them."""
    weights = {0: 0.5, 1: 1.0, 2: 3.0}
    model, plain = kit.ipu_model(), kit.compiled(kit.sequential())
    model.set_weights(plain.get_weights())
    model.fit(X, Y, sample_weight=Y + 1.0, class_weight=weights, batch_size=7, shuffle=False, verbose=0)
    product = (Y + 1.0) * np.array(list(weights.values()))[Y]
    plain.fit(X, Y, sample_weight=product, batch_size=7, shuffle=False, verbose=0)
    assert_close(model.get_weights(), plain.get_weights())
    with pytest.raises(ValueError, match="class_weight"):
        kit.ipu_model().fit(X, Y, class_weight={0: 1.0, 2: 1.0}, verbose=0)


def test_partial_sample_weights(kit: Kit) -> None:
    def build() -> Any:
        inputs = keras.Input((5,))
        return keras.Model(inputs, [keras.layers.Dense(1, name="a")(inputs), keras.layers.Dense(1, name="b")(inputs)])

    targets = [X[:, :1], X[:, 1:2]]
    weights = {"a": np.linspace(0, 1, 24), "b": np.ones(24)}
    kit.assert_same(
        lambda m: m.fit(X, {"a": targets[0], "b": targets[1]}, sample_weight=weights, batch_size=8, verbose=0,
                        shuffle=False).history,
        build, loss="mse", metrics=None,
    )  # fmt: skip


def test_preprocessing_layers_adapt_on_the_host(kit: Kit) -> None:
    def build() -> Any:
        normalization = keras.layers.Normalization()
        normalization.adapt(X)
        return keras.Sequential([keras.layers.Input((5,)), normalization, keras.layers.Dense(3, "softmax")])

    kit.assert_same(lambda m: m.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history, build)


def test_plain_models_keep_their_handler(kit: Kit) -> None:
    model = kit.compiled(kit.sequential())
    handler = data_adapter.get_data_handler(x=X, y=Y, model=model, batch_size=8)
    assert isinstance(handler._adapter, data_adapter.TensorLikeDataAdapter)
