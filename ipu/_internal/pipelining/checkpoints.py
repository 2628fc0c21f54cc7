"""Marks a tensor that is stored where the rest of its pipeline stage is recomputed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from engine.ir.device_operations import RECOMPUTATION_CHECKPOINT
from ipu._internal.compiler.device_calls import device_call
from ipu._internal.types import TensorLike


def checkpointed(value: TensorLike) -> tf.Tensor:
    """The tensor, marked; its gradient passes unchanged. Strings and dynamic shapes get no mark."""
    tensor = tf.convert_to_tensor(value)
    if not (tensor.dtype.is_numpy_compatible and tensor.dtype != tf.string and tensor.shape.is_fully_defined()):
        return tf.identity(tensor)

    @tf.custom_gradient
    def marked(x: tf.Tensor) -> Any:
        (same,) = device_call(RECOMPUTATION_CHECKPOINT, [x], {}, [tf.TensorSpec(x.shape, x.dtype)])
        return same, lambda gradient: gradient

    return marked(tensor)
