"""Utility operations for replicated mode: the public name of `tensorflow.python.ipu.replication_ops`."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.compiler import collectives
from ipu._internal.names.namespace import public_names

__all__ = ["replication_index"]
__getattr__, __dir__ = public_names(__name__, __all__)


def replication_index(name: str | None = None) -> tf.Tensor:
    """An operation which allows the user to get the replication index (Python API, 18.14.15).

    Args:
        name: optional op name.

    Returns:
        This replica's number, an int32 scalar in [0, number of replicas).

    Raises:
        ValueError: called outside of a function that runs on the IPU.
    """
    return collectives.replica_index(name)
