"""Graphcore utility operations: the public names of `tensorflow.python.ipu.internal_ops`."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from ipu._internal.compiler.device_calls import require_trace
from ipu._internal.compiler.loop_context import current_counter
from ipu._internal.compiler.variables import in_symbolic_graph, tracing
from ipu._internal.graphs.session_operations import building_graph, host_operation
from ipu._internal.names.namespace import public_names
from ipu._internal.queues.enqueueing import enqueue
from ipu._internal.queues.printer import Printer, write
from ipu._internal.types import TensorLike

__all__ = ["get_current_iteration_counter", "print_tensor"]
__getattr__, __dir__ = public_names(__name__, __all__)


def print_tensor(input: TensorLike, name: str = "") -> tf.Tensor:
    """Print the specified input each time the operation is executed (Python API, 18.14.4).

    In a tf.Graph, outside of ipu_compiler.compile, a session prints it on the host.

    Args:
        input: the tensor to print, of any static shape and a numeric or boolean dtype.
        name: optional op name, which is printed before the value, after the names of the scopes.

    Returns:
        The input as a tensor whose computation includes the printing to the standard error. It is printed even if the
        tensor is unused; with R > 1 replicas as one array [R, ...], but a Keras model's replicas print one by one.

    Raises:
        RuntimeError: called eagerly, or in a tf.function that does not run on the device.
    """
    tensor = tf.convert_to_tensor(input)
    if in_symbolic_graph():
        return tf.identity(tensor)  # Keras infers shapes; the graph is never executed
    in_session = not tracing() and building_graph()
    if not in_session:
        require_trace("print_tensor")
    graph = ops.get_default_graph()
    path = graph.unique_name("print_tensor", mark_as_used=True)
    title = f"{path}/{name}" if name else path
    if in_session:
        with tf.control_dependencies([_printed_on_host(title, tensor)]):
            return tf.identity(tensor)
    printer = Printer(title)
    # Programs refer to the printer by name only: the graph keeps it alive.
    graph._ipu_printers = [*getattr(graph, "_ipu_printers", []), printer]
    with tf.control_dependencies([enqueue(printer.name, [tensor])]):
        return tf.identity(tensor)


def _printed_on_host(title: str, tensor: tf.Tensor) -> tf.Tensor:
    """The tensor, which a session prints: it executes operations outside of programs on the host."""

    def call(array: np.ndarray) -> list[np.ndarray]:
        write(title, array)
        return [array]

    return host_operation(call, [tensor], [tf.TensorSpec(tensor.shape, tensor.dtype)])[0]


def get_current_iteration_counter() -> tf.Tensor:
    """The number of iterations that the innermost loop of `ipu.loops` has completed, int32[].

    Raises:
        RuntimeError: called outside of the body of a loop.
    """
    counter = current_counter()
    if counter is None:
        raise RuntimeError(
            "Expected get_current_iteration_counter in the body of loops.repeat or loops.while_loop. "
            "Received: a call outside of any."
        )
    return tf.identity(counter)
