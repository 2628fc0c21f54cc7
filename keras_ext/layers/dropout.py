"""Dropout whose mask may follow from a seed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from keras_ext.layers.definition import Definition
from keras_ext.layers.errors import LayerArgumentError
from keras_ext.types import Tensor


class Dropout(Definition):
    """Sets a fraction `rate` of the inputs to 0 in training, and scales the others by 1 / (1 - rate).

    Args:
        rate: a float of [0, 1).
        noise_shape: the shape of the mask, which broadcasts to the inputs': integers, in a sequence or a tensor. None
            among them is the inputs' dimension.
        seed: None, or a pair of 32-bit integers. None draws a new mask at each step, and on each replica, as Keras
            does. A seed gives the same mask at each step and on each replica.
        seed_modifier: an integer that changes what a seed draws: layers with one seed and different modifiers differ.
        **kwargs: arguments of every Keras layer.

    Raises:
        ValueError: `rate` or `seed` has another value.
    """

    base = "Dropout"
    settings = ("seed", "seed_modifier")

    def __init__(
        self,
        rate: float,
        noise_shape: Any = None,
        seed: Any = None,
        *,
        seed_modifier: int = 1,
        **kwargs: Any,
    ) -> None:
        if not 0 <= rate < 1:
            raise LayerArgumentError(f"Expected a rate of dropout of at least 0 and less than 1. Received: {rate}.")
        if noise_shape is not None:
            noise_shape = tuple(None if size is None else int(size) for size in noise_shape)
        super().__init__(rate, noise_shape=noise_shape, **kwargs)
        self.seed = None if seed is None else _pair(seed)
        self.seed_modifier = seed_modifier

    def call(self, inputs: Tensor, training: Any = None) -> Tensor:
        """Drops inputs in training.

        Args:
            inputs: a tensor of a floating-point type, of any shape.
            training: a bool, or a bool tensor: whether to drop; None takes Keras' context, or False without one.

        Returns:
            The inputs, some of them set to 0 in training; shape and dtype stay.
        """
        if self.seed is None or self.rate == 0:
            return super().call(inputs, training=training)
        if isinstance(training, tf.Tensor):
            return tf.cond(tf.cast(training, tf.bool), lambda: self._dropped(inputs), lambda: tf.identity(inputs))
        return self._dropped(inputs) if training else inputs

    def _dropped(self, inputs: Tensor) -> Tensor:
        shape = None
        if self.noise_shape is not None:
            shape = [tf.shape(inputs)[axis] if size is None else size for axis, size in enumerate(self.noise_shape)]
        seed = tf.bitwise.bitwise_xor(tf.constant(self.seed), tf.constant([0, self.seed_modifier - 1]))
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed, noise_shape=shape)


def _pair(seed: Any) -> tuple[int, ...]:
    pair = np.asarray(seed)
    if pair.shape != (2,) or pair.dtype.kind not in "iu":
        raise LayerArgumentError(
            f"Expected a seed of Dropout that is a pair of 32-bit integers, or None. Received: {seed!r}. "
            "Use seed=(number, 0) for a single number."
        )
    return tuple(int(value) for value in pair.astype(np.uint32).view(np.int32))
