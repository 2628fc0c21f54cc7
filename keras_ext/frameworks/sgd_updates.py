"""Keras' update of SGD with fewer operations, but with the same arithmetic in the same order."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import is_served, multiply, shared_by, subtract, total
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def update_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """SGD's `update_step`. Calls Keras' own for variables and gradients that `is_served` excludes."""
    moments = (optimizer.momentums[optimizer._get_variable_index(variable)],) if optimizer.momentum else ()
    if not is_served(gradient, (float(optimizer.momentum),), *moments, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_common, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, momentum = shared_by(optimizer, variable.dtype, learning_rate, (optimizer.momentum,), compute)
    scaled = multiply(total(gradient, variable.dtype), rate)
    if not moments:
        return optimizer.assign_sub(variable, scaled)
    moment = subtract(multiply(tf.convert_to_tensor(moments[0]), momentum), scaled)
    optimizer.assign(moments[0], moment)
    optimizer.assign_add(variable, subtract(multiply(moment, momentum), scaled) if optimizer.nesterov else moment)


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate and the momentum, which Keras rounds through float32."""
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), tf.cast(optimizer.momentum, dtype)
