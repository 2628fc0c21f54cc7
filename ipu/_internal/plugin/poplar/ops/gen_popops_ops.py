"""`tensorflow.compiler.plugin.poplar.ops.gen_popops_ops`: rows of tables, and collectives."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.compiler import collectives
from ipu._internal.names.namespace import public_names
from ipu._internal.operators.serialization import serialized_lookup
from ipu._internal.types import TensorLike

__all__ = [
    "ipu_all_gather",
    "ipu_all_to_all",
    "ipu_cross_replica_mean",
    "ipu_cross_replica_sum",
    "ipu_multi_slice",
    "ipu_multi_update",
    "ipu_multi_update_add",
    "ipu_reduce_scatter",
]
__getattr__, __dir__ = public_names(__name__, __all__)


def ipu_multi_slice(
    input: TensorLike, indices: TensorLike, indices_are_sorted: bool = False, name: str | None = None
) -> tf.Tensor:
    """Rows of a table. Its gradient is a dense tensor of the shape of `input`.

    Args:
        input: the table, [N, width] of known shape.
        indices: numbers of rows, int32 [...].
        indices_are_sorted: accepted; it has no effect here.
        name: optional name of the operation.

    Returns:
        The rows, [*indices.shape, width]. Those of indices outside of [0, N) are undefined.
    """
    with tf.name_scope(name or "ipu_multi_slice"):
        return serialized_lookup(tf.convert_to_tensor(input), tf.convert_to_tensor(indices), 1)


def ipu_multi_update(
    input: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    indices_are_sorted: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """The table with some rows replaced.

    Args:
        input: the table, [N, width].
        indices: numbers of rows, int32 [n], or [n, 1].
        updates: the new rows, [n, width]; of several for one row, any one is taken.
        indices_are_sorted: accepted; it has no effect here.
        name: optional name of the operation.

    Returns:
        A tensor like `input`. Indices outside of [0, N) are left out.
    """
    with tf.name_scope(name or "ipu_multi_update"):
        return tf.tensor_scatter_nd_update(input, _column(indices), updates)


def ipu_multi_update_add(
    input: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    scale: TensorLike,
    indices_are_sorted: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """The table with multiples of rows added to some of its rows.

    Args:
        input: the table, [N, width].
        indices: numbers of rows, int32 [n], or [n, 1].
        updates: the rows to add, [n, width]; a row whose number occurs several times gets all of them.
        scale: the factor of all updates, a scalar of the table's dtype.
        indices_are_sorted: accepted; it has no effect here.
        name: optional name of the operation.

    Returns:
        A tensor like `input`. Indices outside of [0, N) are left out.
    """
    with tf.name_scope(name or "ipu_multi_update_add"):
        table = tf.convert_to_tensor(input)
        scaled = tf.cast(updates, table.dtype) * tf.cast(scale, table.dtype)
        return tf.tensor_scatter_nd_add(table, _column(indices), scaled)


def ipu_all_gather(input: TensorLike, replication_factor: int, name: str | None = None) -> tf.Tensor:
    """The tensors of all replicas of a group, [replication_factor, *input.shape]; see all_to_all_op.all_gather."""
    return collectives.all_gather(input, replication_factor, name)


def ipu_all_to_all(
    input: TensorLike, split_dimension: int, concat_dimension: int, split_count: int, name: str | None = None
) -> tf.Tensor:
    """Exchanges blocks along one dimension between `split_count` replicas; see all_to_all_op.all_to_all."""
    return collectives.all_to_all(input, split_dimension, concat_dimension, split_count, name)


def ipu_cross_replica_sum(
    input: TensorLike, replica_group_size: int | None = None, name: str | None = None
) -> tf.Tensor:
    """The sum over the replicas of each group, of all replicas by default; see cross_replica_ops."""
    return collectives.cross_replica_sum(input, replica_group_size, name)


def ipu_cross_replica_mean(
    input: TensorLike, replica_group_size: int | None = None, name: str | None = None
) -> tf.Tensor:
    """The mean over the replicas of each group, of all replicas by default; see cross_replica_ops."""
    return collectives.cross_replica_mean(input, replica_group_size, name)


def ipu_reduce_scatter(
    input: TensorLike, replication_factor: int, op: str = "COLLECTIVE_OP_ADD", name: str | None = None
) -> tf.Tensor:
    """A replica's part of the reduction of `input`, [n], over a group; see reduce_scatter_op.reduce_scatter."""
    return collectives.reduce_scatter(input, replication_factor, op.removeprefix("COLLECTIVE_OP_"), name)


def _column(indices: TensorLike) -> tf.Tensor:
    return tf.reshape(tf.convert_to_tensor(indices), [-1, 1])
