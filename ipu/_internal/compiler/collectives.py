"""Operations between replicas, as TensorFlow operations with gradients; they run only on the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from engine.ir.device_operations import (
    ALL_GATHER,
    ALL_TO_ALL,
    ASSUME_EQUAL,
    BATCH_NORM,
    CROSS_REPLICA_MEAN,
    CROSS_REPLICA_SUM,
    REDUCE_SCATTER,
    REPLICA_INDEX,
)
from ipu._internal.compiler.device_calls import device_call
from ipu._internal.types import TensorLike

Gradient = Callable[[Any], Any]
OF_BOOLEANS = ("LOGICAL_AND", "LOGICAL_OR", "LOCAL")
"""The operations of reduce_scatter that take booleans, too."""


def cross_replica_sum(x: TensorLike, group: int | None = None, name: str | None = None) -> tf.Tensor:
    """The sum over a group's replicas, in the shape of `x`; its gradient is the sum of the replicas' gradients."""
    return _same_shape(CROSS_REPLICA_SUM, cross_replica_sum, x, group, name or "cross_replica_sum")


def cross_replica_mean(x: TensorLike, group: int | None = None, name: str | None = None) -> tf.Tensor:
    """The mean over a group's replicas, in the shape of `x`; its gradient is the mean of the replicas' gradients."""
    return _same_shape(CROSS_REPLICA_MEAN, cross_replica_mean, x, group, name or "cross_replica_mean")


def statistic(x: TensorLike, group: int) -> tf.Tensor:
    """The sum over a group's replicas of a batch normalisation's sum over its batch."""
    x = _operand(x, "x")
    config = {"replica_group_size": group, BATCH_NORM: True}
    return _operation(CROSS_REPLICA_SUM, x, x.shape.as_list(), config, lambda dy: statistic(dy, group), "statistic")


def all_gather(x: TensorLike, group: int, name: str | None = None) -> tf.Tensor:
    """[group, ...x]: the operands of a group's replicas, in order."""
    x = _operand(x, "x")
    group = checked_integer("replication_factor", group)

    def gradient(upstream: TensorLike) -> Any:
        position = tf.math.floormod(replica_index(), group)
        return tf.gather(cross_replica_sum(upstream, group), position)

    config = {"replica_group_size": group}
    return _operation(ALL_GATHER, x, [group, *x.shape.as_list()], config, gradient, name or "all_gather")


def all_to_all(x: TensorLike, split: int, joined: int, replicas: int, name: str | None = None) -> tf.Tensor:
    """Block r along `split` of each replica's operand, concatenated along `joined` on replica r.

    The gradient is the inverse exchange. Raises ConfigurationError where dimension `split` does not divide.
    """
    x = _operand(x, "x")
    replicas = checked_integer("replication_factor", replicas)
    split, joined = (_dimension(d, x, n) for d, n in ((split, "split_dimension"), (joined, "concat_dimension")))
    shape = x.shape.as_list()
    if shape[split] % replicas:
        raise ConfigurationError(
            f"Expected dimension {split} (split_dimension) to divide into {replicas} blocks. Received: the shape "
            f"{x.shape}. Nearest: {shape[split] // replicas * replicas}."
        )
    shape[split] //= replicas
    shape[joined] *= replicas
    config = {"split_dimension": split, "concat_dimension": joined, "number_of_replicas": replicas}
    return _operation(
        ALL_TO_ALL, x, shape, config, lambda upstream: all_to_all(upstream, joined, split, replicas), name
    )


def reduce_scatter(x: TensorLike, group: int, operation: str, name: str | None = None) -> tf.Tensor:
    """Slice r, [ceil(n / group)], of the group's reduction of `x`, [n], on its r-th replica.

    Raises ConfigurationError for another rank; its gradient LookupError for operations other than ADD and MEAN.
    """
    x = _operand(x, "x", may_be_boolean=operation in OF_BOOLEANS)
    group = checked_integer("replication_factor", group)
    if x.shape.rank != 1:
        raise ConfigurationError(f"Expected x of rank 1. Received: the shape {x.shape}. Use tf.reshape(x, [-1]).")
    length = x.shape.as_list()[0]

    def gradient(upstream: TensorLike) -> Any:
        if operation not in ("ADD", "MEAN"):
            raise LookupError(f"No gradient is defined for reduce_scatter with COLLECTIVE_OP_{operation}.")
        whole = tf.reshape(all_gather(upstream, group), [-1])[:length]
        return whole / group if operation == "MEAN" else whole

    config = {"operation": operation, "replica_group_size": group}
    return _operation(REDUCE_SCATTER, x, [-(-length // group)], config, gradient, name or "reduce_scatter")


def replica_index(name: str | None = None) -> tf.Tensor:
    """The number of this replica, int32[]."""
    _check_graph("replication_index")
    with tf.name_scope(name or "replication_index"):
        (index,) = device_call(REPLICA_INDEX, [], {}, [tf.TensorSpec([], tf.int32)])
    return index


def assume_equal(x: TensorLike, name: str | None = None) -> tf.Tensor:
    """`x`, declared equal on all replicas; the gradient passes unchanged."""
    x = tf.convert_to_tensor(x)
    return _operation(ASSUME_EQUAL, x, x.shape.as_list(), {}, lambda upstream: upstream, name or "assume_equal")


def _same_shape(target: str, itself: Callable[..., Any], x: TensorLike, group: int | None, name: str) -> tf.Tensor:
    x = _operand(x, "x")
    # A group of 0 is all replicas, as None is.
    size = checked_integer("replica_group_size", group) if group else None
    config = {"replica_group_size": size}
    return _operation(target, x, x.shape.as_list(), config, lambda upstream: itself(upstream, size), name)


def _operation(
    target: str, x: tf.Tensor, shape: Sequence[int], config: dict[str, Any], gradient: Gradient, name: str | None
) -> tf.Tensor:
    _check_graph(target.removeprefix("ipu."))

    @tf.custom_gradient
    def apply(x: TensorLike) -> tuple[Any, Gradient]:
        (result,) = device_call(target, [x], config, [tf.TensorSpec(shape, x.dtype)])
        return result, gradient

    with tf.name_scope(name or target.removeprefix("ipu.")):
        return apply(x)


def _operand(x: TensorLike, name: str, may_be_boolean: bool = False) -> tf.Tensor:
    x = tf.convert_to_tensor(x)
    if not (x.dtype.is_floating or x.dtype.is_integer or (may_be_boolean and x.dtype.is_bool)):
        raise TypeError(f"Expected {name} to have a numeric type. Received: {x.dtype.name}. Nearest: int32.")
    if not x.shape.is_fully_defined():
        raise ConfigurationError(
            f"Expected {name} to have a shape that is known when the program is built. Received: {x.shape}. "
            f"Batch with drop_remainder=True, or use tf.ensure_shape."
        )
    return x


def _dimension(value: object, x: tf.Tensor, name: str) -> int:
    return checked_integer(f"{name}, of the shape {x.shape},", value, 0, x.shape.rank - 1)


def _check_graph(name: str) -> None:
    if tf.executing_eagerly() or not (ops.inside_function() or "IPU:" in tf.no_op("device").device.upper()):
        raise ConfigurationError(
            f"Expected {name} in a function that runs on the IPU. Received: a call outside of any. Put it into a "
            f"tf.function and call that with IPUStrategy.run, or in a tf.Graph into the scope of an IPU device."
        )
