"""Collectives between processes on the host (Python API, 18.10): eager, or as operations of a graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.processes import host_collectives
from ipu._internal.types import TensorLike

__all__ = ["allgather", "allreduce", "broadcast"]
__getattr__, __dir__ = public_names(__name__, __all__)


def allgather(tensor: TensorLike, name: str | None = None) -> tf.Tensor:
    """The processes' tensors concatenated on their first dimension, in the order of ranks.

    Args:
        tensor: of any numeric or boolean type and rank of at least 1. Shapes may differ in the first dimension alone.
        name: distinguishes the call from others on the same shapes.

    Returns:
        A tensor of the dtype of `tensor`, whose first dimension is the sum of the first dimensions on all processes.

    Raises:
        ValueError: `tensor` is a scalar.
        ProcessError: another process calls another collective, or has ended.
    """
    return host_collectives.all_gather(tensor, name or "")


def allreduce(tensor: TensorLike, op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    """Reduces the processes' tensors; all processes get the same result.

    Args:
        tensor: a tensor or variable of a numeric type, of one shape on all processes, or tf.IndexedSlices, whose
            values and indices are gathered.
        op: `Average` (None) or `Sum` of `ipu.horovod`, or a tf.distribute.ReduceOp; `Min`, `Max` and `Product` for
            tensors. Averages of integers truncate towards zero.
        prescale_factor: a factor of each process' tensor.
        postscale_factor: a factor of the result.

    Returns:
        A tensor of the dtype and shape of `tensor`; tf.IndexedSlices for tf.IndexedSlices, with the rows of all.

    Raises:
        NotImplementedError: `Adasum`.
        ValueError: another `op`.
        ProcessError: another process calls another collective, or has ended.
    """
    return host_collectives.all_reduce(tensor, op, prescale_factor, postscale_factor)


def broadcast(tensor: TensorLike, root_rank: int, name: str | None = None) -> tf.Tensor:
    """Returns the tensor of process `root_rank` on all processes, which pass tensors of one type and shape.

    Args:
        tensor: of any numeric or boolean type; only its value on process `root_rank` is used.
        root_rank: the rank of the process whose tensor is returned, from 0 to the number of processes less 1.
        name: distinguishes the call from others on the same shapes.

    Returns:
        A tensor of the dtype and shape of `tensor`, the same on all processes.

    Raises:
        ValueError: `root_rank` is no rank.
        ProcessError: another process calls another collective, or has ended.
    """
    return host_collectives.broadcast(tensor, root_rank, name or "")
