"""Keras models of both kinds train on the debug executor: the same bits, and nothing found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.debug import Session, debugging
from ipu.utils import reset_ipu_seed
from tests.keras.helpers import KITS, Kit

SAMPLES, BATCH, CLASSES = 12, 4, 3
Build = Callable[[Any], tuple[Any, np.ndarray]]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(SAMPLES, *shape)).astype(np.float32)


def mlp(keras: Any) -> tuple[Any, np.ndarray]:
    layers = keras.layers
    parts = [layers.Dense(20, "relu"), layers.Dropout(0.2), layers.Dense(CLASSES, "softmax")]
    return keras.Sequential([keras.Input((7,)), *parts]), numbers(7)


def cnn(keras: Any) -> tuple[Any, np.ndarray]:
    layers = keras.layers
    inputs = keras.Input((9, 9, 3))
    x = layers.Conv2D(6, 3, padding="same", use_bias=False)(inputs)
    x = layers.MaxPooling2D()(layers.Activation("relu")(layers.BatchNormalization()(x)))
    x = layers.DepthwiseConv2D(3, strides=2)(x)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 1, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(CLASSES, "softmax")(x)), numbers(9, 9, 3)


def lstm(keras: Any) -> tuple[Any, np.ndarray]:
    layers = keras.layers
    parts = [layers.LSTM(6, return_sequences=True), layers.LSTM(5), layers.Dense(CLASSES, "softmax")]
    return keras.Sequential([keras.Input((5, 4)), *parts]), numbers(5, 4)


def transformer(keras: Any) -> tuple[Any, np.ndarray]:
    layers = keras.layers
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Embedding(11, 8)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
    model = keras.Model(tokens, layers.Dense(CLASSES, "softmax")(layers.GlobalAveragePooling1D()(x)))
    return model, np.random.default_rng(2).integers(0, 11, (SAMPLES, 6)).astype(np.int32)


def trained(kit: Kit, build: Build) -> list[np.ndarray]:
    """Weights, losses and predictions after three steps, from the same random state each time."""
    kit.keras.utils.set_random_seed(5)
    reset_ipu_seed(5)
    made: list[np.ndarray] = []

    def model() -> Any:
        built, data = build(kit.keras)
        made.append(data)
        return built

    labels = np.arange(SAMPLES) % CLASSES
    fitted = kit.ipu_model(model, optimizer=kit.keras.optimizers.Adam(0.01), steps_per_execution=3)
    history = fitted.fit(made[0], labels, batch_size=BATCH, shuffle=False, verbose=0)
    losses = np.array([history.history[name] for name in sorted(history.history)])
    return [*fitted.get_weights(), losses, fitted.predict(made[0], batch_size=BATCH, verbose=0)]


def checked(kit: Kit, build: Build, tiles: int) -> Session:
    expected = trained(kit, build)
    with debugging(tiles) as session:
        received = trained(kit, build)
    for result, value in zip(received, expected, strict=True):
        assert result.dtype == value.dtype and result.tobytes() == value.tobytes()
    return session


BUILDS = [mlp, cnn, *(pytest.param(build, marks=pytest.mark.explore) for build in (lstm, transformer))]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KITS)
@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_models_train(kind: str, build: Build) -> None:
    session = checked(KITS[kind], build, tiles=3)
    training, *others = session.records
    assert training.steps == SAMPLES // BATCH and all(record.steps for record in others)
    assert any(superstep.exchanged for superstep in training.supersteps)
    assert training.name in session.table()


def test_programs_that_were_there_before_stay_fast() -> None:
    kit = KITS["keras"]
    model = kit.ipu_model()
    x, y = numbers(5), np.arange(SAMPLES) % CLASSES
    model.fit(x, y, batch_size=BATCH, verbose=0)
    with debugging() as session:
        model.fit(x, y, batch_size=BATCH, verbose=0)
        assert not session.records and session.table() == ""
        model.predict(x, batch_size=BATCH, verbose=0)
    assert [record.steps for record in session.records] == [SAMPLES // BATCH]
