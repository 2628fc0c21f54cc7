"""Control flow operators: the public name of `tensorflow.python.ipu.control_flow_ops`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.types import Nest

__all__ = ["barrier"]
__getattr__, __dir__ = public_names(__name__, __all__)


def barrier(tensors: Nest, insert_barrier_for_gradients: bool = False, name: str | None = None) -> Any:
    """A control flow barrier: all `tensors` are computed before any of the results is used.

    It holds where TensorFlow executes operations. In programs of the device, the scheduler orders operations by their
    dependencies, and results are the same in any order.

    Args:
        tensors: a tensor or a structure of tensors.
        insert_barrier_for_gradients: accepted; gradients pass unchanged.
        name: optional op name.

    Returns:
        `tensors`, in their structure.
    """
    flat = list(map(tf.convert_to_tensor, tf.nest.flatten(tensors)))
    with tf.name_scope(name or "barrier"), tf.control_dependencies(flat):
        return tf.nest.pack_sequence_as(tensors, list(map(tf.identity, flat)))
