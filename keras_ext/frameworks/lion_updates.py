"""Keras' update of Lion with fewer operations. The arithmetic, and its order, is Keras'."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import add, is_served, made, multiply, shared_by, total
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def update_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Lion's `update_step`; Keras' own where traced updates are not served."""
    m = optimizer._momentums[optimizer._get_variable_index(variable)]
    numbers = (optimizer.beta_1, optimizer.beta_2)
    if not is_served(gradient, numbers, m, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_common, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, *betas = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, moment = total(gradient, variable.dtype), tf.convert_to_tensor(m)
    first, second = (
        add(multiply(moment, beta), multiply(gradient, rest))
        for beta, rest in zip(betas[::2], betas[1::2], strict=True)
    )
    optimizer.assign_sub(variable, multiply(rate, made("Sign", first)))
    optimizer.assign(m, second)


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, beta_1, 1 - beta_1, beta_2 and 1 - beta_2, with betas rounded through float32 as by Keras."""
    first, second = (tf.cast(beta, dtype) for beta in (optimizer.beta_1, optimizer.beta_2))
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), first, 1.0 - first, second, 1.0 - second
