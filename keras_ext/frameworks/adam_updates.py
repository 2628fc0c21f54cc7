"""Keras' update of Adam with half of the operations. The arithmetic, and its order, is Keras'."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import add, divide, is_served, made, multiply, shared_by, subtract, totals
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def update_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Adam's `update_step`; Keras' own where traced updates are not served, and with `amsgrad`."""
    index = optimizer._get_variable_index(variable)
    m, v = optimizer._momentums[index], optimizer._velocities[index]
    numbers = (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon)
    if optimizer.amsgrad or not is_served(gradient, numbers, m, v, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_common, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, first, second, epsilon = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, squares = totals(gradient, variable.dtype)
    moment, square = tf.convert_to_tensor(m), tf.convert_to_tensor(v)
    moment = add(moment, multiply(subtract(gradient, moment), first))
    square = add(square, multiply(subtract(squares, square), second))
    optimizer.assign(m, moment)
    optimizer.assign(v, square)
    root = add(made("Sqrt", square), epsilon)
    optimizer.assign_sub(variable, divide(multiply(moment, rate), root))


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The corrected rate, with betas that Keras rounds through float32, then 1 - beta_1, 1 - beta_2 and epsilon."""
    iteration = tf.cast(tf.convert_to_tensor(optimizer.iterations) + 1, dtype)
    first, second = (1 - tf.pow(tf.cast(beta, dtype), iteration) for beta in (optimizer.beta_1, optimizer.beta_2))
    rate = tf.cast(tf.convert_to_tensor(learning_rate), dtype) * tf.sqrt(second) / first
    numbers = (1 - optimizer.beta_1, 1 - optimizer.beta_2, optimizer.epsilon)
    return rate, *(tf.constant(each, dtype) for each in numbers)
