"""`compile`: a function as one program on the IPU (section 18.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph

from ipu._internal.compiler.device_calls import require_trace
from ipu._internal.names.namespace import public_names

__all__ = ["compile"]


@autograph.autograph_artifact
def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Adds `computation` to the program that is being traced for the device.

    Args:
        computation: a Python function of as many arguments as there are `inputs`, which may return tensors and then
            operations. The operations are executed with the tensors.
        inputs: a list of values or nested structures of values that are convertible to tensors; None means none.

    Returns:
        A list of the tensors, with one element for a single tensor; nested structures are kept; a no-op operation if
        `computation` returned no tensor.

    Raises:
        TypeError: `inputs` is no list or tuple.
        RuntimeError: called outside of a tf.function that runs on the device.
        ValueError: an operation comes before a tensor.
    """
    require_trace("ipu_compiler.compile")
    if inputs is not None and not isinstance(inputs, list | tuple):
        raise TypeError(f"Expected inputs to be a list, a tuple or None. Received: {inputs!r}.")
    values = [tf.nest.map_structure(tf.convert_to_tensor, value) for value in inputs or ()]
    results = autograph.tf_convert(computation, ag_ctx.control_status_ctx())(*values)
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
