"""Marks gradient accumulation in a traced function, so that its loop's number of iterations can be checked."""

from __future__ import annotations

import tensorflow as tf

from engine.ir.device_operations import ACCUMULATION_ITERATION
from ipu._internal.compiler.device_calls import device_call


def accumulation_iteration(count: tf.Tensor, num_mini_batches: int) -> tf.Tensor:
    """The count of batches since the last update, int32[], of `num_mini_batches`: returned unchanged."""
    config = {"num_mini_batches": num_mini_batches}
    (same,) = device_call(ACCUMULATION_ITERATION, [count], config, [tf.TensorSpec([], count.dtype)])
    return same
