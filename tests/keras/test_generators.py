"""Generators that a program uses several times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras

import ipu
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import data


@pytest.mark.parametrize("steps", [1, 3])
def test_a_generator_goes_on_where_an_earlier_use_ended(steps: int) -> None:
    """Each batch has its number as label; the first two are read to see their shapes."""
    losses = {"optimizer": keras.optimizers.SGD(0.0), "loss": "mean_absolute_error", "steps_per_execution": steps}
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(**losses)

    def slow() -> Iterator[Any]:
        for number in range(100):
            time.sleep(0.02)  # a thread that reads ahead would still run when the next evaluation begins
            yield np.zeros((1, 3), np.float32), np.full((1, 1), number, np.float32)

    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32)
    history = model.fit(x, y, epochs=3, validation_data=slow(), validation_steps=3, verbose=0).history
    source = slow()
    assert history["val_loss"][0] == 1
    model.fit(source, epochs=2, steps_per_epoch=3, shuffle=False, verbose=0)
    assert next(source)[1] == 6
    model.evaluate(source, steps=3, verbose=0)
    assert next(source)[1] == 10
    model.predict(source, steps=3, verbose=0)
    assert next(source)[1] == 14


@pytest.mark.parametrize("accelerated", [False, True])
def test_validations_of_tf_keras_lose_no_batch_of_a_generator(accelerated: bool) -> None:
    """Each batch has its number as label; TensorFlow loses those that it has read ahead at the end of a validation."""

    def numbers() -> Iterator[Any]:
        for number in range(100):
            yield np.zeros((1, 3), np.float32), np.full((1, 1), number, np.float32)

    with ipu.accelerate() if accelerated else IPUStrategy().scope():
        model = tf_keras.Sequential([tf_keras.layers.Input((3,)), tf_keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(tf_keras.optimizers.SGD(0.0), "mean_absolute_error", steps_per_execution=2)
    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32)
    history = model.fit(x, y, epochs=4, validation_data=numbers(), validation_steps=3, verbose=0).history
    assert history["val_loss"] == [1, 4, 7, 10]


def test_a_generator_can_be_read_when_a_fit_has_stopped_early() -> None:
    def slow() -> Iterator[Any]:
        x, y = data(8)
        while True:
            time.sleep(0.1)
            yield x, y

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = epoch == 1  # by then the step is compiled, and reading takes longer

    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=2)
    source = slow()
    model.fit(source, epochs=4, steps_per_epoch=2, shuffle=False, verbose=0, callbacks=[Stop()])
    next(source)  # an error while a thread reads it
