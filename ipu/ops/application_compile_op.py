"""Compiling functions into files: the public names of `tensorflow.python.ipu.ops.application_compile_op`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from engine.errors import ConfigurationError
from engine.files import SUFFIX, write_executable
from ipu._internal.compiler.executable_file import executable_file, traced_function
from ipu._internal.compiler.program import build_executable
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

    Args:
        func: the function; a loop over an infeed queue and an outfeed queue, or any function of tensors.
        inputs: its arguments: tensors, arrays or tf.TensorSpecs, of which only shape and dtype are used.
        output_path: where to write the file; a new temporary file, *.poplar_exec, if there is none.
        freeze_variables: whether variables become constants of their present values. If not, they are inputs at the
            start of the program, in the order in which the function uses them, or by their names.
        name: optional op name.

    Returns:
        A scalar tensor of strings with the path of the file.

    Raises:
        TypeError: `func` cannot be called.
        ValueError: the program needs several replicas.
        NotImplementedError: XLA or the engine does not support an operation of the function.
    """
    if not callable(func):
        raise TypeError(f"Expected func to be a function. Received: {func!r}.")
    # Eager, even in a tf.Graph: the trace belongs to no session. tf.init_scope would stop the tapes of the function.
    with context.eager_mode():
        traced = traced_function(func, tuple(inputs or ()))
        if traced.replicas > 1:
            raise ConfigurationError(
                f"Expected a program of one replica. Received: one of {traced.replicas}. Set auto_select_ipus = 1."
            )
        file = executable_file(traced, freeze=freeze_variables)
        # Unsupported operations raise here and not where the file is used.
        build_executable(file.module, file.roles, file.constants)
        if output_path is None:
            handle, output_path = tempfile.mkstemp(suffix=SUFFIX)
            os.close(handle)
        write_executable(os.fspath(output_path), file)
    with tf.init_scope():
        return tf.constant(os.fspath(output_path), name=name)
