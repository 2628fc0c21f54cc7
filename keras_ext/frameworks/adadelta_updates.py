"""Keras' update of Adadelta with fewer operations. The arithmetic, and its order, is Keras'."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import add, divide, is_served, made, multiply, shared_by, totals
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def update_step(original: Original, optimizer: Any, grad: Tensor, variable: Any, learning_rate: Any) -> None:
    """Adadelta's `update_step`; Keras' own where traced updates are not served."""
    index = optimizer._get_variable_index(variable)
    gradients, steps = optimizer._accumulated_grads[index], optimizer._accumulated_delta_vars[index]
    numbers = (optimizer.rho, optimizer.epsilon)
    if not is_served(grad, numbers, gradients, steps, variable):
        return original(optimizer, grad, variable, learning_rate)
    compute = partial(_common, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, kept, taken, epsilon = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, squares = totals(grad, variable.dtype)
    before = tf.convert_to_tensor(steps)
    after = add(multiply(kept, tf.convert_to_tensor(gradients)), multiply(taken, squares))
    optimizer.assign(gradients, after)
    top, bottom = (made("Sqrt", add(each, epsilon)) for each in (before, after))
    step = made("Neg", divide(multiply(top, gradient), bottom))
    # The square of each row's step, where a batch names rows twice.
    square = made("Square", step)
    if isinstance(grad, tf.IndexedSlices):
        square = multiply(made("Square", divide(top, bottom)), squares)
    optimizer.assign(steps, add(multiply(kept, before), multiply(taken, square)))
    optimizer.assign_add(variable, multiply(rate, step))


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, rho, 1 - rho and epsilon."""
    numbers = (optimizer.rho, 1 - optimizer.rho, optimizer.epsilon)
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), *(tf.constant(each, dtype) for each in numbers)
