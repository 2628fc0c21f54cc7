"""Compiling functions into files: the public names of `tensorflow.python.ipu.ops.application_compile_op`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from engine.errors import ConfigurationError
from engine.files.executable_file import SUFFIX, write_executable
from ipu._internal.compiler.executable_file import executable_file, traced_function
from ipu._internal.compiler.program import build_executable
from ipu._internal.compiler.trace import TracedStep
from ipu._internal.compiler.variables import tracing
from ipu._internal.graphs.session_operations import building_graph
from ipu._internal.names.namespace import public_names

__all__ = ["experimental_application_compile_op"]
__getattr__, __dir__ = public_names(__name__, __all__)


def experimental_application_compile_op(
    func: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    output_path: str | None = None,
    freeze_variables: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Compile a function into an executable file, which `embedded_runtime` runs.

    In a tf.Graph it is an operation: the variables of `func` are in the graph from the call on, to be initialized or
    restored, and each run by a session writes the file, with the values of the variables in that session. Elsewhere
    the file is written at once.

    Args:
        func: the function; a loop over an infeed queue and an outfeed queue, or any function of tensors.
        inputs: its arguments: tensors, arrays or tf.TensorSpecs, of which only shape and dtype are used; placeholders
            of unknown shapes are fed when the operation is run.
        output_path: where to write the file; a new temporary file, *.poplar_exec, if there is none.
        freeze_variables: whether variables become constants of their present values. If not, they are inputs at the
            start of the program, in the order in which the function uses them, or by their names.
        name: optional op name.

    Returns:
        A scalar tensor of strings with the path of the file; in a tf.Graph, of the file that the session has written.

    Raises:
        TypeError: `func` cannot be called.
        ValueError: the program needs several replicas.
        NotImplementedError: XLA or the engine does not support an operation of the function.
    """
    if not callable(func):
        raise TypeError(f"Expected func to be a function. Received: {func!r}.")

    def write(traced: TracedStep) -> str:
        return _written(traced, output_path, freeze_variables)

    if not tracing() and building_graph():
        from ipu._internal.graphs.compiling import write_in_graph  # not before a graph needs it

        return write_in_graph(func, tf.nest.map_structure(_tensor, list(inputs or ())), write, name)
    # Eager, even in a tf.function: the trace belongs to no graph. tf.init_scope would stop the tapes of the function.
    with context.eager_mode():
        path = write(traced_function(func, tuple(inputs or ())))
    with tf.init_scope():
        return tf.constant(path, name=name)


def _tensor(value: Any) -> tf.Tensor:
    """A tensor of the default graph, of the shape and dtype of a value or a tf.TensorSpec."""
    return tf.zeros(value.shape, value.dtype) if isinstance(value, tf.TensorSpec) else tf.convert_to_tensor(value)


def _written(traced: TracedStep, output_path: str | None, freeze: bool) -> str:
    """Writes the step to `output_path`, or to a new file, and returns the path. Raises as the compile operation."""
    if traced.replicas > 1:
        raise ConfigurationError(
            f"Expected a program of one replica. Received: one of {traced.replicas}. Set auto_select_ipus = 1."
        )
    file = executable_file(traced, freeze=freeze)
    # Unsupported operations raise here and not where the file is used.
    build_executable(file.module, file.roles, file.constants)
    if output_path is None:
        handle, output_path = tempfile.mkstemp(suffix=SUFFIX)
        os.close(handle)
    write_executable(os.fspath(output_path), file)
    return os.fspath(output_path)
