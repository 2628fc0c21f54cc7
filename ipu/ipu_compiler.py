"""`compile`, which makes a function one program on the IPU, in a tf.Graph or a tf.function (section 18.2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler.device_calls import require_trace
from ipu._internal.compiler.variables import tracing
from ipu._internal.conversion import converted
from ipu._internal.graphs.session_operations import building_graph
from ipu._internal.names.namespace import public_names

__all__ = ["compile"]


class _Compiling(threading.local):
    inside: bool = False


_compiling = _Compiling()


def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Builds an operation that compiles and runs `computation` on the IPU.

    In a tf.Graph a session runs it: the program is compiled by its first run, and variables stay on the device from one
    run to the next. Resource variables can be updated, reference variables (use_resource=False) only read. All
    operations of `computation` with side effects are executed, in the order in which it creates them.
    In a tf.function that runs on the device, `computation` becomes a part of its program.

    Args:
        computation: a Python function that takes as many arguments as there are `inputs`. It may return tensors, then
            operations; the operations are executed with the tensors.
        inputs: a list of values or nested structures of values that are convertible to tensors; None means none.

    Returns:
        A list of the tensors, with one element for a single tensor; nested structures are kept; a no-op operation if
        `computation` returned no tensor.

    Raises:
        TypeError: `inputs` is no list or tuple.
        RuntimeError: called eagerly, or in a tf.function that does not run on the device.
        ValueError: an operation comes before a tensor, a reference variable is updated, a tensor is of another graph,
            compile is called in a computation that is being compiled, or an optimizer's update is created but not
            returned, which a loop of TensorFlow 1 would not execute.
    """
    if _compiling.inside:
        raise ConfigurationError(
            "Expected ipu_compiler.compile outside of a computation that is being compiled. Received: a call in one. "
            "Call the inner function itself: it becomes a part of the program."
        )
    in_graph = not tracing() and building_graph()
    if not in_graph:
        require_trace("ipu_compiler.compile")
    if inputs is not None and not isinstance(inputs, list | tuple):
        raise TypeError(f"Expected inputs to be a list, a tuple or None. Received: {inputs!r}.")
    values = [tf.nest.map_structure(tf.convert_to_tensor, value) for value in inputs or ()]
    _compiling.inside = True
    try:
        if not in_graph:
            return _results(converted(computation)(*values))
        from ipu._internal.graphs.compiling import compile_in_graph  # not before a graph needs it
        from ipu._internal.graphs.tracing import before_updates

        def traced(*arguments: Any) -> Any:
            return _results(tf.nest.map_structure(before_updates, computation(*arguments)))

        return compile_in_graph(traced, values)
    finally:
        _compiling.inside = False


def _results(results: Any) -> Any:
    """The results of a computation, as `compile` returns them."""
    if results is None:
        return tf.no_op()
    if not isinstance(results, list | tuple):
        results = [results]
    leaves = tf.nest.flatten(results)
    operations = [leaf for leaf in leaves if isinstance(leaf, tf.Operation)]
    if any(isinstance(leaf, tf.Operation) for leaf in leaves[: len(leaves) - len(operations)]):
        raise ValueError("Expected tensors before operations. Received: an operation before a tensor.")
    tensors = [result for result in results if not isinstance(result, tf.Operation)]
    with tf.control_dependencies(operations):
        if not tensors:
            return tf.no_op()
        return [tf.nest.map_structure(tf.identity, tensor) for tensor in tensors]


__getattr__, __dir__ = public_names(__name__, __all__)
