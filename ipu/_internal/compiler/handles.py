"""Variables known to a trace by their handle only, as TensorFlow's training operations take it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops

from ipu._internal.types import TensorLike


class HandleVariable:
    """A variable outside of the strategy as the engine uses it: a value to read and to replace."""

    def __init__(self, handle: tf.Tensor) -> None:
        (data,) = handle._handle_data.shape_and_type
        self.name = "variable"
        self._handle = handle
        self._dtype = tf.as_dtype(data.dtype)

    def numpy(self) -> Any:
        """The value, as an array."""
        with ops.init_scope(), context.eager_mode():
            return gen_resource_variable_ops.read_variable_op(self._handle, self._dtype).numpy()

    def assign(self, value: TensorLike) -> None:
        """Replaces the value."""
        with ops.init_scope(), context.eager_mode():
            gen_resource_variable_ops.assign_variable_op(self._handle, tf.constant(value, self._dtype))


def is_variable(handle: tf.Tensor) -> bool:
    """Whether a resource is a variable, and not a table or an iterator."""
    data = getattr(handle, "_handle_data", None)
    return bool(data is not None and data.is_set and len(data.shape_and_type) == 1)
