"""Keras' update of Adam with half of the operations, as tracing and converting these is most of a first step's time.

What variables share is computed once for each application of gradients and learning rate, and no value is read again
that an operation has just stored. The arithmetic, and its order, is Keras'.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.variables import tracing
from ipu._internal.thread_values import ThreadValue
from keras_ext.types import Tensor
from keras_ext.wrapping import Original

Shared = dict[tuple[Any, ...], tuple[Any, ...]]
"""The learning rate, as its id is in the key, the corrected rate, 1 - beta_1, 1 - beta_2 and epsilon."""
_shared: ThreadValue[Shared | None] = ThreadValue(None)


@contextlib.contextmanager
def applying() -> Iterator[None]:
    """Within, gradients are applied once: the number of iterations and the learning rate stay the same."""
    with _shared.replaced_by({} if tracing() else None):
        yield


def update_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Adam's `update_step`; Keras' own outside of `applying`, for sparse gradients and for moments of other dtypes."""
    shared = _shared.value
    if shared is None or optimizer.amsgrad or not tf.is_tensor(gradient) or isinstance(gradient, tf.IndexedSlices):
        return original(optimizer, gradient, variable, learning_rate)
    index = optimizer._get_variable_index(variable)
    m, v = optimizer._momentums[index], optimizer._velocities[index]
    numbers = (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon)
    if not m.dtype == v.dtype == variable.dtype or not all(isinstance(each, float) for each in numbers):
        return original(optimizer, gradient, variable, learning_rate)
    # A subclass may have rates or betas for each variable.
    key = tf.compat.v1.get_default_graph(), id(optimizer), variable.dtype, id(learning_rate), numbers
    if key not in shared:
        shared[key] = (learning_rate, *_common(optimizer, tf.as_dtype(variable.dtype), learning_rate))
    _, rate, first, second, epsilon = shared[key]
    gradient = tf.cast(gradient, variable.dtype)
    moment, square = tf.convert_to_tensor(m), tf.convert_to_tensor(v)
    moment = _add(moment, _multiply(_subtract(gradient, moment), first))
    square = _add(square, _multiply(_subtract(_made("Square", gradient), square), second))
    optimizer.assign(m, moment)
    optimizer.assign(v, square)
    root = _add(_made("Sqrt", square), epsilon)
    optimizer.assign_sub(variable, _made("RealDiv", _multiply(moment, rate), root, name="truediv"))


def _made(kind: str, *operands: Tensor, name: str | None = None) -> Tensor:
    """The result of an operation on operands of one dtype, without TensorFlow's checks of them: a third of the time."""
    graph = tf.compat.v1.get_default_graph()
    return graph.create_op(kind, operands, [operands[0].dtype], name=name or kind).outputs[0]


_add = partial(_made, "AddV2", name="add")
_multiply = partial(_made, "Mul", name="mul")
_subtract = partial(_made, "Sub", name="sub")


def _common(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    iteration = tf.cast(tf.convert_to_tensor(optimizer.iterations) + 1, dtype)
    first, second = (1 - tf.pow(tf.constant(beta, dtype), iteration) for beta in (optimizer.beta_1, optimizer.beta_2))
    rate = tf.cast(tf.convert_to_tensor(learning_rate), dtype) * tf.sqrt(second) / first
    numbers = (1 - optimizer.beta_1, 1 - optimizer.beta_2, optimizer.epsilon)
    return rate, *(tf.constant(each, dtype) for each in numbers)
