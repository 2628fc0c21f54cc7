"""Keras' update of RMSprop with half of the operations. The arithmetic, and its order, is Keras'."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import add, divide, is_served, made, multiply, shared_by
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def update_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """RMSprop's `update_step`; Keras' own where traced updates are not served, with a momentum and centered."""
    v = optimizer._velocities[optimizer._get_variable_index(variable)]
    numbers = (optimizer.rho, optimizer.epsilon)
    if optimizer.centered or optimizer.momentum > 0 or not is_served(gradient, numbers, v, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_common, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, kept, taken, epsilon = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient = tf.cast(gradient, variable.dtype)
    velocity = add(multiply(kept, tf.convert_to_tensor(v)), multiply(taken, made("Square", gradient)))
    optimizer.assign(v, velocity)
    root = made("Sqrt", add(velocity, epsilon))
    optimizer.assign_sub(variable, divide(multiply(rate, gradient), root))


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, rho, 1 - rho and epsilon."""
    numbers = (optimizer.rho, 1 - optimizer.rho, optimizer.epsilon)
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), *(tf.constant(each, dtype) for each in numbers)
