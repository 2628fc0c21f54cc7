"""Compiling a program draws no random number: the program's own are those of plain Keras, and none may be refused."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import config

import ipu


@pytest.fixture
def deterministic() -> Iterator[None]:
    """TensorFlow's determinism without a seed, as scikeras leaves it after a fit."""
    seed = context.global_seed()
    tf.config.experimental.enable_op_determinism()
    context.set_global_seed(None)
    yield
    config.disable_op_determinism()
    context.set_global_seed(seed)


def model() -> keras.Model:
    with ipu.accelerate():
        made = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3, kernel_initializer="ones")])
        made.compile("sgd", "mse")
    return made


def test_draws_after_a_compilation_are_those_without_it() -> None:
    x = np.ones((16, 8), np.float32)
    tf.random.set_seed(3)
    expected = tf.random.uniform([4]).numpy()
    tf.random.set_seed(3)
    model().predict(x, verbose=0)
    np.testing.assert_array_equal(tf.random.uniform([4]).numpy(), expected)


def test_programs_compile_under_determinism_without_a_seed(deterministic: None) -> None:
    made, x = model(), np.ones((16, 8), np.float32)
    np.testing.assert_array_equal(made.predict(x, verbose=0), np.full((16, 3), 8, np.float32))
    assert made.fit(x, x[:, :3], shuffle=False, verbose=0).history["loss"] == [pytest.approx(49.0)]
