"""Configures floating-point behaviour, and small models of halves."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from ipu.utils import reset_ipu_seed


def configure(ipus: int = 1, **behaviour: Any) -> None:
    """Puts a configuration in force with these attributes of floating_point_behaviour."""
    config = IPUConfig()
    config.auto_select_ipus = ipus
    for name, value in behaviour.items():
        setattr(config.floating_point_behaviour, name, value)
    config.configure_ipu_system()
    reset_ipu_seed(1)


def slow_learner(keras: Any, size: int = 256) -> Any:
    """y = w * x with halves w = 1; a target of 1 + 1/64 moves w by about 2**-13 a step, less than half a unit."""
    with IPUStrategy().scope():
        inputs = keras.Input((size,), dtype="float16")
        product = Scale(keras)(inputs)
        model = keras.Model(inputs, product)
        model.compile(keras.optimizers.SGD(1.0), sum_of_squares(keras), steps_per_execution=4)
    return model


def Scale(keras: Any) -> Any:
    """A layer with one half for each feature."""

    class Scaling(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", dtype="float16", name="scale")

        def call(self, inputs: Any) -> Any:
            return inputs * self.scale

    return Scaling(dtype="float16", name="scaling")


def sum_of_squares(keras: Any) -> Any:
    """Makes a loss that sums over features, so that Keras' averages over the batch stay 16 bits wide."""

    def loss(target: Any, output: Any) -> Any:
        import tensorflow as tf

        return tf.reduce_sum(tf.square(output - target), axis=-1) * tf.constant(2.0**-8, output.dtype)

    return loss


def targets(samples: int, size: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Makes inputs of ones, and the weights that training ought to reach."""
    x = np.ones((samples, size), np.float16)
    return x, np.full((samples, size), 1 + 2.0**-6, np.float16)
