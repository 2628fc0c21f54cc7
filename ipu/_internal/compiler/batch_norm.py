"""Statistics of batch normalisations over groups of replicas, `norms.experimental.distributed_batch_norm_...`.

XLA's batch normalisations are replaced in the program; layers that compute moments themselves call `group_moments`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.ir import Module
from ipu._internal.compiler.collectives import statistic
from ipu._internal.compiler.function_trace import replicas_of_step
from ipu._internal.compiler.variables import in_symbolic_graph, tracing
from ipu._internal.config.system import current_system
from ipu._internal.types import Nest

OPTION = "norms.experimental.distributed_batch_norm_replica_group_size"


def group_size() -> int:
    """Number of replicas that share statistics in the present configuration."""
    return int(current_system().config.norms.experimental.distributed_batch_norm_replica_group_size)


def group_of_layer(layer: object) -> int:
    """The number of replicas that share a layer's moments being traced; 1 where the layer reduces them by itself."""
    if not tracing() or in_symbolic_graph():
        return 1
    return replicas_of_step() if getattr(layer, "synchronized", False) else group_size()


def group_moments(
    group: int, x: tf.Tensor, axes: Sequence[int], weights: Nest = None, keepdims: bool = False, epsilon: float = 0.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and biased variance of `x` over `axes` and a group's replicas, in the dtype of `x`; 16-bit x in float32.

    `weights`, broadcast against `x`, weight its elements; `epsilon` is added to their sum.
    """
    wide = tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x
    weights = tf.ones([], wide.dtype) if weights is None else tf.cast(weights, wide.dtype)

    def total(value: tf.Tensor) -> tf.Tensor:
        return statistic(tf.reduce_sum(value, axes, keepdims=True), group)

    count = total(tf.broadcast_to(weights, wide.shape)) + epsilon
    mean = total(wide * weights) / count
    variance = total(tf.square(wide - mean) * weights) / count
    if not keepdims:
        mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
    return tf.cast(mean, x.dtype), tf.cast(variance, x.dtype)


def with_groups(module: Module) -> Module:
    """The module of a traced function with the statistics of groups of replicas."""
    if (group := group_size()) == 1:
        return module
    # The engine's passes load Numba, which takes long: imported only for a group.
    from engine.partition.batch_norm_groups import over_groups

    return over_groups(module, group)


def in_a_pipeline() -> ConfigurationError:
    """The error for statistics of several replicas in a pipelined Keras model, whose replicas do not run together."""
    return ConfigurationError(
        f"Expected no batch normalisation over several replicas in a pipelined Keras model. Received: {OPTION} = "
        f"{group_size()}, or a layer with synchronized=True. Set 1 and False, train without pipelining, or write the "
        f"pipeline with pipelining_ops.pipeline."
    )
