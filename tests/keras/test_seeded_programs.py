"""Programs that set a seed: orders of rows and random layers are those of plain Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu
from ipu.ipu_strategy import IPUStrategy
from tests.exploring import sample
from tests.keras.helpers import KITS, Kit, both_frameworks
from tests.keras.micro_batches import configure

X = np.random.default_rng(0).random((70, 8)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def compiled(kit: Kit, *layers: Any) -> Any:
    keras = kit.keras
    model = keras.Sequential([keras.layers.Dense(6, "relu"), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def assert_same(kit: Kit, program: Callable[[], Any], rtol: float = 1e-5) -> None:
    """Asserts that a program has the numbers of plain Keras in `ipu.accelerate()`."""
    kit.keras.utils.set_random_seed(7)
    expected = program()
    kit.keras.utils.set_random_seed(7)
    with ipu.accelerate():
        received = program()
    np.testing.assert_allclose(np.array(received), np.array(expected), rtol)


@both_frameworks
def test_orders_of_rows(kit: Kit) -> None:
    ways: list[dict[str, Any]] = [{}, {"shuffle": "batch"}, {"steps_per_epoch": 2}, {"validation_split": 0.2}]
    ways += [{"shuffle": "BATCH"}, {"batch_size": 14}, {"batch_size": 70}, {"sample_weight": Y[:, 0]}]
    for given in sample(ways, 3):

        def program(given: dict[str, Any] = given) -> Any:
            model = compiled(kit)
            history = [model.fit(X, Y, epochs=2, verbose=0, **given).history["loss"] for _ in range(2)]
            return [*np.ravel(history), np.random.rand(), float(tf.random.uniform([]))]

        assert_same(kit, program)


@both_frameworks
def test_orders_without_a_seed_are_numpys(kit: Kit) -> None:
    state = np.random.get_state()
    losses = []
    for seed in (1, 1, 2):
        kit.keras.utils.set_random_seed(3)
        with ipu.accelerate():
            model = compiled(kit)
            model.build((None, 8))
        tf.random.set_seed(None)
        np.random.seed(seed)
        losses.append(model.fit(X, Y, verbose=0).history["loss"])
    np.random.set_state(state)
    assert losses[0] == losses[1] != losses[2]


LAYERS: dict[str, Callable[[Any], list[Any]]] = {
    "dropout": lambda L: [L.Dropout(0.5), L.GaussianDropout(0.3), L.GaussianNoise(0.1)],
    "recurrent": lambda L: [L.Reshape((3, 2)), L.GRU(5, dropout=0.3)],
    "images": lambda L: [L.Reshape((3, 2, 1)), L.RandomFlip(), L.RandomContrast(0.4), L.Flatten()],
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LAYERS)
def test_random_layers_with_shuffling(name: str) -> None:
    kit = KITS["keras"]

    def program() -> Any:
        model = compiled(kit, *LAYERS[name](kit.keras.layers))
        return model.fit(X, Y, epochs=2, verbose=0).history["loss"]

    assert_same(kit, program)


def test_generators_and_seeds_of_a_models_own() -> None:
    kit = KITS["keras"]
    keras = kit.keras

    class Sampling(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = keras.layers.Dense(4), keras.layers.Dense(8)
            self.seeds, self.generator = keras.random.SeedGenerator(3), tf.random.Generator.from_seed(3)

        def call(self, x: Any) -> Any:
            z = self.inner(keras.random.shuffle(x, seed=self.seeds))
            for draw in (keras.random.normal, keras.random.truncated_normal, keras.random.uniform):
                z += 0.1 * draw(keras.ops.shape(z), seed=self.seeds)
            return self.outer(z + self.generator.normal(tf.shape(z)))

    def program() -> Any:
        model = Sampling()
        model.compile("sgd", "mse")
        return model.fit(X, X, epochs=2, verbose=0).history["loss"]

    assert_same(kit, program)


@both_frameworks
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_resumed_fit_goes_on_with_the_order(kit: Kit, replicas: int, tmp_path: Any) -> None:
    """Three replicas leave out two of 14 batches in each epoch."""
    configure(replicas)
    keras = kit.keras

    class Ends(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise InterruptedError

    def fit(*callbacks: Any) -> Any:
        keras.utils.set_random_seed(7)
        with IPUStrategy().scope():
            model = compiled(kit)
            model.build((None, 8))
            model.fit(X, Y, 5, epochs=4, verbose=0, callbacks=list(callbacks))
        return model.get_weights()

    whole = fit()
    with pytest.raises(InterruptedError):
        fit(keras.callbacks.BackupAndRestore(str(tmp_path)), Ends())
    for received, expected in zip(fit(keras.callbacks.BackupAndRestore(str(tmp_path))), whole, strict=True):
        np.testing.assert_array_equal(received, expected)
