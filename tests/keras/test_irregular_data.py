"""Data other than dense arrays of whole batches: sparse, ragged, and with a smaller last batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, assert_close

RANDOM = np.random.default_rng(0)
pytestmark = pytest.mark.filterwarnings("ignore:.shuffle=True. was passed:UserWarning")  # Keras' own
X = (RANDOM.normal(size=(12, 6)) * (RANDOM.random((12, 6)) < 0.3)).astype(np.float32)
Y = RANDOM.normal(size=(12, 2)).astype(np.float32)
PLAIN = tf.distribute.get_strategy()
SOURCES: dict[str, Callable[[], Any]] = {
    "tensor": lambda: (tf.sparse.from_dense(X), Y),
    "scipy": lambda: (scipy.sparse.csr_matrix(X), Y),
    "data set": lambda: (tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(X), Y)).batch(4), None),
}


def results(kit: Kit, x: Any, y: Any, strategy: Any, sparse: bool) -> list[Any]:
    """Results of a model before, during and after training on batches of four rows."""
    kit.keras.utils.set_random_seed(1)
    with strategy.scope():
        inputs = kit.keras.Input((6,), sparse=sparse)
        model = kit.keras.Model(inputs, kit.keras.layers.Dense(2, "tanh")(inputs))
    model.compile("adam", "mse", run_eagerly=strategy is PLAIN)
    size = {} if y is None else {"batch_size": 4}
    losses = model.fit(x, y, epochs=2, shuffle=False, verbose=0, **size).history["loss"]
    return [losses, model.evaluate(x, y, verbose=0, **size), model.predict(x, verbose=0, **size), model.get_weights()]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("source", "sparse_input"), [("tensor", False), *((source, True) for source in SOURCES)])
def test_sparse_data_train_as_in_keras(kit: Kit, source: str, sparse_input: bool) -> None:
    expected = results(kit, X, Y, PLAIN, False)
    assert_close(results(kit, *SOURCES[source](), IPUStrategy(), sparse_input), expected)


def test_single_sparse_batches(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = kit.keras.Sequential([kit.keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    dense = model.predict_on_batch(X)
    sparse = tf.sparse.from_dense(X)
    assert_close(model.predict_on_batch(sparse), dense)
    assert_close(model.test_on_batch(sparse, Y), np.mean((dense - Y) ** 2))
    model.train_on_batch(sparse, Y)
    assert np.abs(model.predict_on_batch(X) - dense).max() > 1e-4


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_ragged_data_are_refused(kit: Kit, method: str) -> None:
    with IPUStrategy().scope():
        model = kit.keras.Sequential([kit.keras.Input((3,)), kit.keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    ragged = tf.RaggedTensor.from_row_lengths(X.reshape(-1)[:34], [3] * 10 + [2, 2])
    labels = () if method == "predict" else (Y,)
    data = tf.data.Dataset.from_tensor_slices((ragged, *labels)).batch(4)
    for arguments in ((ragged, *labels), (data,)):
        with pytest.raises(ValueError, match="Received: a RaggedTensor.*to_tensor") as caught:
            getattr(model, method)(*arguments, verbose=0)
        assert isinstance(caught.value, UnsupportedOperation)
    assert model.predict(X[:, :3], verbose=0).shape == (12, 2)


BATCHES: dict[str, Any] = {
    "arrays": lambda rows: {"x": X, "y": Y, "batch_size": rows},
    "data set": lambda rows: {"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(rows)},
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["fit", "evaluate"])
@pytest.mark.parametrize("source", BATCHES)
def test_sequential_models_without_input_keep_open_rows(kit: Kit, source: str, method: str) -> None:
    def shapes(strategy: Any, rows: int) -> list[Any]:
        with strategy.scope():
            model = kit.keras.Sequential([kit.keras.layers.Dense(3), kit.keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        getattr(model, method)(**BATCHES[source](rows), verbose=0)
        assert model.predict_on_batch(X[:3]).shape == (3, 2)
        return [tuple(model.input_shape), tuple(model.output_shape), tuple(model.layers[0].output.shape)]

    for rows in (5, 4):
        found = shapes(IPUStrategy(), rows)
        assert found == shapes(PLAIN, rows)
        if rows == 5 or source == "data set":
            assert found == [(None, 6), (None, 2), (None, 3)]
