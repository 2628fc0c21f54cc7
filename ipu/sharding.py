"""Utility functions for sharding graphs: the public names of `tensorflow.python.ipu.sharding` (Python API, 18.16)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ipu._internal.names.namespace import public_names

__all__ = ["dependencies", "get_shard_from_colocation", "has_attr", "propagate_sharding"]
__getattr__, __dir__ = public_names(__name__, __all__)

SHARD = "_XlaSharding"
COLOCATED = b"loc:@"


def has_attr(o: tf.Operation, attr_name: str) -> bool:
    """Whether an operation has an attribute of that name.

    Args:
        o: the operation.
        attr_name: the name of the attribute.

    Returns:
        True or False.
    """
    return attr_name in o.node_def.attr


def dependencies(roots: Iterable[Any]) -> set[tf.Operation]:
    """Returns the given operations (or the operations of tensors) with all their transitive inputs, control inputs too.

    Args:
        roots: operations or tensors of a graph.

    Returns:
        A set of operations.
    """
    pending = [getattr(root, "op", root) for root in roots]
    found: set[tf.Operation] = set()
    while pending:
        operation = pending.pop()
        if operation is not None and operation not in found:
            found.add(operation)
            pending += [each.op for each in operation.inputs]
            pending += operation.control_inputs
    return found


def get_shard_from_colocation(op: tf.Operation) -> Any:
    """The sharding attribute of an operation with which `op` is colocated; None if there is none.

    Args:
        op: an operation of a graph.

    Returns:
        An AttrValue, or None.
    """
    for group in op.colocation_groups():
        name = group.removeprefix(COLOCATED).decode()
        if name == op.name:
            continue
        try:
            other = op.graph.get_operation_by_name(name)
        except KeyError:
            continue
        if has_attr(other, SHARD):
            return other.node_def.attr[SHARD]
    return None


def get_sharding(op: tf.Operation | tf.Tensor) -> Any:
    """The sharding attribute of an operation, or of the operation that computes a tensor; None if it has none.

    Args:
        op: an operation or a tensor of a graph.

    Returns:
        An AttrValue, or None.
    """
    operation = getattr(op, "op", op)
    return operation.node_def.attr[SHARD] if has_attr(operation, SHARD) else None


def propagate_sharding(g: tf.Graph) -> None:
    """Move the sharding from the forward pass operations onto their co-located backward pass operations.

    Args:
        g: the graph, which is changed in place; operations that have a sharding keep it.
    """
    pending = [op for op in g.get_operations() if not has_attr(op, SHARD)]
    while pending:
        shards = [(op, get_shard_from_colocation(op)) for op in pending]
        for op, shard in shards:
            if shard is not None:
                op._set_attr(SHARD, shard)
        left = [op for op, shard in shards if shard is None]
        if len(left) == len(pending):
            return
        pending = left
