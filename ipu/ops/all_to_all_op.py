"""All to all and all gather operators: the public names of `tensorflow.python.ipu.all_to_all_op`."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.compiler import collectives
from ipu._internal.names.namespace import public_names
from ipu._internal.types import TensorLike

__all__ = ["all_gather", "all_to_all"]
__getattr__, __dir__ = public_names(__name__, __all__)


def all_gather(x: TensorLike, replication_factor: int, name: str | None = None) -> tf.Tensor:
    """Gather the data on all replicas to all other replicas (Python API, 18.14.10).

    Args:
        x: the tensor to gather, of a numeric type.
        replication_factor: the number of replicas in each group, which are consecutive.
        name: optional op name.

    Returns:
        A tensor [replication_factor, ...x], the same for all replicas of a group.

    Raises:
        ValueError: called outside of a function that runs on the IPU, `replication_factor` is no integer above 0, or,
            when the program is built, it does not divide the number of replicas.
        TypeError: `x` is not numeric.
    """
    return collectives.all_gather(x, replication_factor, name)


def all_to_all(
    x: TensorLike, split_dimension: int, concat_dimension: int, replication_factor: int, name: str | None = None
) -> tf.Tensor:
    """Perform an XLA all to all operation across all replicas (Python API, 18.14.10).

    Args:
        x: the tensor to split, of a numeric type.
        split_dimension: the dimension of `x` which is split into `replication_factor` blocks; replica r gets block r
            of every replica.
        concat_dimension: the dimension along which it concatenates the blocks, in the order of the replicas.
        replication_factor: the number of replicas.
        name: optional op name.

    Returns:
        A tensor of as many elements, different on each replica.

    Raises:
        ValueError: a dimension is not in [0, rank of x), `split_dimension` does not divide, or, when the program is
            built, `replication_factor` is not the number of replicas.
        TypeError: `x` is not numeric.
    """
    return collectives.all_to_all(x, split_dimension, concat_dimension, replication_factor, name)
