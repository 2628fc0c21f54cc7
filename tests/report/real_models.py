"""Reports of usual models: a convolutional network, an LSTM, and a transformer of four pipeline stages."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
from keras import layers

import ipu
from engine.report import Report
from ipu.ipu_strategy import IPUStrategy
from tests.keras.pipelines import set_stages
from tests.models.small_models import Positions, transformer_block

WORDS, LENGTH, CLASSES = 200, 16, 10


def cnn() -> Report:
    """Two convolutions with normalization and a head, training on 16 images of 32 by 32 pixels."""

    def build() -> keras.Model:
        convolutions = [
            layer
            for width in (16, 32)
            for layer in (
                layers.Conv2D(width, 3, padding="same", name=f"conv{width}"),
                layers.BatchNormalization(),
                layers.ReLU(),
                layers.MaxPooling2D(),
            )
        ]
        head = [layers.Flatten(), layers.Dense(CLASSES, name="head")]
        return keras.Sequential([layers.Input((32, 32, 3)), *convolutions, *head], name="cnn")

    return _profiled(build, np.zeros((16, 32, 32, 3), np.float32), np.zeros(16, np.int32), 16)


def lstm() -> Report:
    """Two LSTM layers between an embedding and a head."""

    def build() -> keras.Model:
        recurrent = [layers.LSTM(48, return_sequences=True, name="first"), layers.LSTM(48, name="second")]
        words = layers.Embedding(WORDS, 32, name="words")
        return keras.Sequential([layers.Input((LENGTH,), dtype="int32"), words, *recurrent, _head()], name="lstm")

    return _profiled(build, np.zeros((16, LENGTH), np.int32), np.zeros(16, np.int32), 16)


def transformer() -> Report:
    """Four blocks of attention, each on an IPU of its own, with eight micro-batches for an update."""

    def build() -> keras.Model:
        tokens = keras.Input((LENGTH,), dtype="int32")
        x = Positions(name="positions")(layers.Embedding(WORDS, 32, name="words")(tokens))
        stages = [0, 0]
        for stage in range(4):
            x = transformer_block(x, 2, 32, causal=True)
            stages += [stage] * 7
        x = layers.GlobalAveragePooling1D(name="mean")(x)
        model = keras.Model(tokens, _head()(x), name="transformer")
        set_stages(model, [*stages, 3, 3])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
        return model

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    return _profiled(build, np.zeros((32, LENGTH), np.int32), np.zeros(32, np.int32), 4)


REAL: dict[str, Callable[[], Report]] = {"cnn": cnn, "lstm": lstm, "transformer": transformer}
"""Functions that make the reports, by name. That of the transformer leaves a system of four IPUs."""


def _head() -> layers.Layer:
    return layers.Dense(CLASSES, name="head")


def _profiled(build: Callable[[], keras.Model], x: np.ndarray, y: np.ndarray, batch: int) -> Report:
    with IPUStrategy().scope():
        model = build()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(), loss, steps_per_execution=8)
    return ipu.profile(model, x, y, batch_size=batch, path=None)
