"""Keras' update of Nadam with a third of the operations. The arithmetic, and its order, is Keras'."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import add, divide, is_served, made, multiply, shared_by, subtract, totals
from keras_ext.types import Tensor
from keras_ext.wrapping import Original

DECAY = 0.96
"""Keras' decay of the momentum schedule."""


def update_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Nadam's `update_step`; Keras' own where traced updates are not served."""
    index = optimizer._get_variable_index(variable)
    m, v = optimizer._momentums[index], optimizer._velocities[index]
    numbers = (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon)
    if not is_served(gradient, numbers, m, v, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_common, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, epsilon, first, second, of_moment, to_moment, of_gradient, to_gradient, of_square = shared_by(
        optimizer, variable.dtype, learning_rate, numbers, compute
    )
    gradient, squares = totals(gradient, variable.dtype)
    moment, square = tf.convert_to_tensor(m), tf.convert_to_tensor(v)
    moment = add(moment, multiply(subtract(gradient, moment), first))
    square = add(square, multiply(subtract(squares, square), second))
    optimizer.assign(m, moment)
    optimizer.assign(v, square)
    ahead = add(divide(multiply(of_moment, moment), to_moment), divide(multiply(of_gradient, gradient), to_gradient))
    root = add(made("Sqrt", divide(square, of_square)), epsilon)
    optimizer.assign_sub(variable, divide(multiply(ahead, rate), root))


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, epsilon, 1 - beta_1, 1 - beta_2, factor and divisor of the moment and of the gradient, divisor
    of the square. Keras rounds the decay and both betas through float32."""
    step, following = (tf.cast(tf.convert_to_tensor(optimizer.iterations) + n, dtype) for n in (1, 2))
    decay, beta_1, beta_2 = (tf.cast(each, dtype) for each in (DECAY, optimizer.beta_1, optimizer.beta_2))
    now, after = (beta_1 * (1.0 - 0.5 * tf.pow(decay, each)) for each in (step, following))
    product = tf.cast(tf.convert_to_tensor(optimizer._u_product), dtype)
    rate, epsilon = tf.cast(tf.convert_to_tensor(learning_rate), dtype), tf.constant(optimizer.epsilon, dtype)
    divisors = 1 - product * after, 1 - product, 1 - tf.pow(beta_2, step)
    return rate, epsilon, 1 - beta_1, 1 - beta_2, after, divisors[0], 1 - now, divisors[1], divisors[2]
