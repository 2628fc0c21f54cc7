"""`tensorflow.compiler.plugin.poplar.ops.gen_poputil_ops`: gradients over replicas and over mini-batches."""

from __future__ import annotations

import tensorflow as tf

from engine.integers import checked_integer
from ipu._internal.compiler.accumulation_iterations import accumulation_iteration
from ipu._internal.compiler.collectives import cross_replica_sum
from ipu._internal.compiler.device_calls import require_trace
from ipu._internal.graphs.variables import zeros_variable
from ipu._internal.names.namespace import public_names
from ipu._internal.types import TensorLike

__all__ = ["ipu_replication_normalise", "ipu_stateful_gradient_accumulate"]
__getattr__, __dir__ = public_names(__name__, __all__)


def ipu_replication_normalise(input: TensorLike, name: str | None = None) -> tf.Tensor:
    """Divides a tensor by the number of replicas.

    Args:
        input: a tensor of a floating-point type.
        name: optional name of the operation.

    Returns:
        A tensor like `input`.

    Raises:
        ValueError: called outside of a function that runs on the IPU.
        TypeError: `input` is of another type.
    """
    with tf.name_scope(name or "ipu_replication_normalise"):
        x = tf.convert_to_tensor(input)
        if not x.dtype.is_floating:
            raise TypeError(f"Expected input of a floating-point type. Received: {x.dtype.name}. Nearest: float32.")
        return x / tf.cast(cross_replica_sum(tf.constant(1.0)), x.dtype)


def ipu_stateful_gradient_accumulate(
    input: TensorLike, num_mini_batches: int, verify_usage: bool = True, name: str | None = None
) -> tf.Tensor:
    """Sums a tensor over `num_mini_batches` iterations of a loop: in the last of them it is the sum, in others zero.

    Args:
        input: the gradient of one iteration, of a static shape.
        num_mini_batches: the number of iterations that are summed; it divides those of the loop.
        verify_usage: accepted; optimizers check what they apply the sum with.
        name: optional name of the operation.

    Returns:
        A tensor like `input`.

    Raises:
        ValueError: `num_mini_batches` is no positive integer.
        RuntimeError: called outside of a function that runs on the IPU.
    """
    require_trace("ipu_stateful_gradient_accumulate")
    batches, name = checked_integer("num_mini_batches", num_mini_batches), name or "ipu_stateful_gradient_accumulate"
    with tf.name_scope(name):
        x = tf.convert_to_tensor(input)
        total, done = zeros_variable(x.shape, x.dtype, f"{name}/sum"), zeros_variable([], tf.int32, f"{name}/count")
        count = accumulation_iteration(done.read_value(), batches)
        is_last = tf.equal(count, batches - 1)
        so_far = tf.where(tf.equal(count, 0), x, total.read_value() + x)
        total.assign(so_far, read_value=False)
        done.assign(tf.math.floormod(count + 1, batches), read_value=False)
        return tf.where(is_last, so_far, tf.zeros_like(so_far))
