"""Keras' update of RMSprop with half of the operations. The arithmetic, and its order, is Keras'."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import add, divide, is_served, made, multiply, shared_by, subtract, totals
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def update_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """RMSprop's `update_step`; Keras' own where traced updates are not served."""
    index = optimizer._get_variable_index(variable)
    v = optimizer._velocities[index]
    m = optimizer._momentums[index] if optimizer.momentum > 0 else None
    average = optimizer._average_gradients[index] if optimizer.centered else None
    numbers = (optimizer.rho, optimizer.epsilon, float(optimizer.momentum))
    if not is_served(gradient, numbers, *(each for each in (v, m, average) if each is not None), variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_common, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, kept, taken, epsilon, momentum = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, squares = totals(gradient, variable.dtype)
    velocity = spread = add(multiply(kept, tf.convert_to_tensor(v)), multiply(taken, squares))
    optimizer.assign(v, velocity)
    if average is not None:
        mean = add(multiply(kept, tf.convert_to_tensor(average)), multiply(taken, gradient))
        optimizer.assign(average, mean)
        spread = subtract(velocity, made("Square", mean))
    step = divide(multiply(rate, gradient), made("Sqrt", add(spread, epsilon)))
    if m is not None:
        step = add(multiply(momentum, tf.convert_to_tensor(m)), step)
        optimizer.assign(m, step)
    optimizer.assign_sub(variable, step)


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, rho, 1 - rho, epsilon and the momentum."""
    numbers = (optimizer.rho, 1 - optimizer.rho, optimizer.epsilon, optimizer.momentum)
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), *(tf.constant(each, dtype) for each in numbers)
