"""The reduce scatter operator: the public name of `tensorflow.python.ipu.reduce_scatter_op`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.partition.collectives import OPERATIONS
from ipu._internal.compiler import collectives
from ipu._internal.names.namespace import public_names
from ipu._internal.types import TensorLike

__all__ = ["reduce_scatter"]
__getattr__, __dir__ = public_names(__name__, __all__)
PREFIX = "COLLECTIVE_OP_"


def reduce_scatter(
    x: TensorLike, replication_factor: int, op: str = "COLLECTIVE_OP_ADD", name: str | None = None
) -> Any:
    """Reduce the given replicated tensor with the result scattered across the replicas (Python API, 18.14.13).

    Args:
        x: the tensor, [n] of a numeric type, or a list of such tensors; booleans for LOGICAL_AND, LOGICAL_OR and LOCAL.
            For numbers, the logical operations treat all but 0 as true, and return 1 or 0 of their type.
        replication_factor: the number of replicas in each group, which are consecutive.
        op: COLLECTIVE_OP_ADD, _MUL, _MIN, _MAX, _LOGICAL_AND, _LOGICAL_OR, _SQUARE_ADD, _MEAN, or _LOCAL, which takes
            each replica's slice of its own tensor. ADD and MEAN have gradients.
        name: optional op name.

    Returns:
        A tensor [ceil(n / replication_factor)], this replica's slice of the result, which is padded with zeros (False);
        a list of such tensors for a list.

    Raises:
        ValueError: `x` is not of rank 1, `op` is unknown, called outside of a function that runs on the IPU, or, when
            the program is built, `replication_factor` does not divide the number of replicas.
        TypeError: `x` is neither numeric nor, for the operations that take them, of booleans.
    """
    names = [*OPERATIONS, "MEAN", "LOCAL"]
    operation = op.removeprefix(PREFIX) if isinstance(op, str) else op
    if operation not in names or not op.startswith(PREFIX):
        raise ConfigurationError(
            f"Expected op to be one of {', '.join(PREFIX + each for each in names)}. Received: {op!r}. "
            f"Nearest: 'COLLECTIVE_OP_ADD'."
        )
    if isinstance(x, list | tuple) and any(tf.is_tensor(each) for each in x):
        return [collectives.reduce_scatter(each, replication_factor, operation, name) for each in x]
    return collectives.reduce_scatter(x, replication_factor, operation, name)
