"""Keras' update of Adagrad with fewer operations. The arithmetic, and its order, is Keras'."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import add, divide, is_served, made, multiply, shared_by, totals
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def update_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Adagrad's `update_step`; Keras' own where traced updates are not served."""
    accumulator, numbers = optimizer._accumulators[optimizer._get_variable_index(variable)], (optimizer.epsilon,)
    if not is_served(gradient, numbers, accumulator, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_common, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, epsilon = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, squares = totals(gradient, variable.dtype)
    total = add(tf.convert_to_tensor(accumulator), squares)
    optimizer.assign(accumulator, total)
    optimizer.assign_sub(variable, divide(multiply(rate, gradient), made("Sqrt", add(total, epsilon))))


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate and epsilon."""
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), tf.constant(optimizer.epsilon, dtype)
