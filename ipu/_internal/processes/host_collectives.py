"""Collectives of the host as TensorFlow operations: computed at once, or by a NumPy function in graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from ipu._internal.processes.active import initialise
from ipu._internal.processes.transport import Operation
from ipu._internal.types import TensorLike

AVERAGE, ADASUM = "average", "adasum"
OPERATIONS: dict[Any, str] = {
    None: AVERAGE,
    tf.distribute.ReduceOp.MEAN: AVERAGE,
    tf.distribute.ReduceOp.SUM: "sum",
    **{name: name for name in (AVERAGE, "sum", "min", "max", "product")},
}
LATEST = "_ipu_latest_host_collective"


def all_reduce(tensor: Any, op: Any = None, before: float = 1.0, after: float = 1.0) -> Any:
    """Reduces over processes, for `ipu.distributed.allreduce`."""
    if op == ADASUM:
        raise NotImplementedError("Expected op to be Average or Sum. Received: Adasum. Use Average.")
    if op not in OPERATIONS:
        raise ConfigurationError(f"Expected op to be one of Average, Sum, Min, Max, Product. Received: {op!r}.")
    operation = OPERATIONS[op]
    transport = initialise()
    if isinstance(tensor, tf.IndexedSlices):
        if operation not in (AVERAGE, "sum"):
            raise ConfigurationError(f"Expected op to be Average or Sum for tf.IndexedSlices. Received: {op!r}.")
        scale = before * after / (transport.size if operation == AVERAGE else 1)
        values = all_gather(_scaled(tensor.values, scale), "values")
        return tf.IndexedSlices(values, all_gather(tensor.indices, "indices"), tensor.dense_shape)
    reduction: Operation = "sum" if operation == AVERAGE else operation  # type: ignore[assignment]

    def call(array: np.ndarray) -> np.ndarray:
        total = transport.all_reduce(array, reduction)
        if operation == AVERAGE and transport.size > 1:
            total = total / transport.size
        return total.astype(array.dtype, copy=False)

    return _scaled(_operation(call, _scaled(tf.convert_to_tensor(tensor), before)), after)


def all_gather(tensor: TensorLike, name: str = "") -> tf.Tensor:
    """Gathers over processes, for `ipu.distributed.allgather`."""
    tensor, transport = tf.convert_to_tensor(tensor), initialise()
    if tensor.shape.rank == 0:
        raise ConfigurationError("Expected a tensor of rank 1 or more. Received: a scalar. Use tf.reshape(x, [1]).")
    shape = None if tensor.shape.rank is None else [None, *tensor.shape.as_list()[1:]]
    return _operation(lambda array: transport.all_gather_rows(array, name), tensor, shape)


def broadcast(tensor: TensorLike, root: int, name: str = "") -> tf.Tensor:
    """Broadcasts over processes, for `ipu.distributed.broadcast`."""
    transport = initialise()
    root = checked_integer("root_rank", root, 0, transport.size - 1)
    return _operation(lambda array: transport.broadcast(array, root, name), tf.convert_to_tensor(tensor))


def _scaled(tensor: tf.Tensor, factor: float) -> tf.Tensor:
    return tensor if factor == 1.0 else tensor * tf.cast(factor, tensor.dtype)


def _operation(call: Callable[[np.ndarray], np.ndarray], tensor: tf.Tensor, shape: Any = ()) -> tf.Tensor:
    """The result of `call`, of the shape of `tensor` or another one; in a graph one follows the other."""
    if hasattr(tensor, "numpy"):
        return tf.constant(call(tensor.numpy()), tensor.dtype)
    graph = tf.compat.v1.get_default_graph()
    latest = getattr(graph, LATEST, None)
    with tf.device("/device:CPU:0"), tf.control_dependencies([] if latest is None else [latest]):
        result = tf.numpy_function(call, [tensor], tensor.dtype)
    if latest is None or not tf.compat.v1.executing_eagerly_outside_functions():
        setattr(graph, LATEST, result.op)
    result.set_shape(tensor.shape if shape == () else shape)
    return result
