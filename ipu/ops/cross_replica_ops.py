"""Cross replica operators: the public names of `tensorflow.python.ipu.cross_replica_ops`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.compiler import collectives
from ipu._internal.names.namespace import public_names
from ipu._internal.types import Nest, TensorLike

__all__ = ["assume_equal_across_replicas", "cross_replica_mean", "cross_replica_sum"]
__getattr__, __dir__ = public_names(__name__, __all__)


def cross_replica_sum(x: TensorLike, replica_group_size: int | None = None, name: str | None = None) -> tf.Tensor:
    """Sum the input tensor across replicas (Python API, 18.14.11).

    Its gradient is the cross-replica sum of the replicas' gradients.

    Args:
        x: the local tensor, of a numeric type and any static shape.
        replica_group_size: the number of replicas in each group, which are consecutive. None is one group of all.
        name: optional op name.

    Returns:
        A tensor like `x`, the same for all replicas of a group, summed in the order of the replicas.

    Raises:
        ValueError: called outside of a function that runs on the IPU, or, when the program is built, with a group
            size that does not divide the number of replicas.
        TypeError: `x` is not numeric.
    """
    return collectives.cross_replica_sum(x, replica_group_size, name)


def cross_replica_mean(x: TensorLike, replica_group_size: int | None = None, name: str | None = None) -> tf.Tensor:
    """Compute the mean of the input tensor across replicas: `cross_replica_sum` divided by the size of the group.

    Args:
        x: the local tensor, of any shape and numeric type.
        replica_group_size: the number of replicas in each group, which are consecutive. None is one group of all.
        name: optional name of the operation.

    Returns:
        A tensor like `x`; the mean of integers is truncated towards zero.

    Raises:
        ValueError, TypeError: as for `cross_replica_sum`.
    """
    return collectives.cross_replica_mean(x, replica_group_size, name)


def assume_equal_across_replicas(tensors: Nest, inplace: bool = False) -> Any:
    """Mark the given tensors as equal across replicas (Python API, 18.14.11).

    All replicas continue with the values of replica 0, so that control flow which depends on them is the same on all
    replicas, and may have collectives and queues inside.

    Args:
        tensors: a tensor or a structure of tensors.
        inplace: accepted; it has no effect here.

    Returns:
        A tensor, or a structure of tensors, like `tensors`.

    Raises:
        ValueError: called outside of a function that runs on the IPU.
    """
    return tf.nest.map_structure(collectives.assume_equal, tensors)
