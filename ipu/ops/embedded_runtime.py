"""Running compiled programs from files: the public names of `tensorflow.python.ipu.ops.embedded_runtime`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.file_runtime import Runtime, start
from engine.files.signature import TensorInfo
from engine.integers import checked_integer
from ipu._internal.names.namespace import public_names
from ipu._internal.types import TensorLike

__all__ = [
    "RuntimeContext",
    "embedded_runtime_call",
    "embedded_runtime_start",
    "embedded_runtime_start_and_call",
    "embedded_runtime_stop",
]
__getattr__, __dir__ = public_names(__name__, __all__)
DTYPES = (tf.int8, tf.uint8, tf.int32, tf.float16, tf.float32)
Inputs = Sequence[Any] | Mapping[str, Any]


class RuntimeContext:
    """A started program: the result of `embedded_runtime_start`, for `embedded_runtime_call`.

    Args:
        name: the name of the program in messages.
        executable_file: the path of its file.
        runtime: the program, loaded and started.
    """

    def __init__(self, name: str, executable_file: str, runtime: Runtime) -> None:
        self.name = name
        self.executable_file = executable_file
        self.runtime = runtime

    def output_types(self) -> list[tf.DType]:
        """The dtype of each output."""
        return [tf.dtypes.as_dtype(info.dtype) for info in self.runtime.outputs]

    def signature(self) -> tuple[list[tf.TensorSpec], list[tf.TensorSpec]]:
        """Shape, dtype and name of each input, and of each output, of a call."""
        inputs, outputs = ([_spec(info) for info in each] for each in (self.runtime.inputs, self.runtime.outputs))
        return inputs, outputs


def embedded_runtime_start(
    executable_file: object, inputs: Inputs | None = None, name: str = "engine", timeout: int = 5000
) -> RuntimeContext:
    """Start a program from an executable file.

    Args:
        executable_file: the path, a string or a scalar tensor of strings.
        inputs: values of inputs that are not streamed: variables that are not frozen, and the function's arguments
            where it reads a queue. A list in the program's order, or a dict by name.
        name: the name of the program in messages.
        timeout: microseconds after which a program that waits for further requests gets zeros, whose results are
            discarded.

    Returns:
        The context for calls.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is no executable, altered or of another version; its path is a symbolic tensor; `timeout`
            is negative; or inputs are missing, unknown or of another shape.
        TypeError: an input of another dtype.
    """
    timeout = checked_integer("timeout, in microseconds,", timeout, 0)
    path = tf.get_static_value(executable_file) if isinstance(executable_file, tf.Tensor) else executable_file
    if path is None:
        raise ConfigurationError(
            f"Expected executable_file to be a path that is known when the program is started. Received: "
            f"{executable_file!r}. Evaluate it first."
        )
    path = path.decode() if isinstance(path, bytes) else str(path)
    given = {} if inputs is None else inputs
    values = {k: _value(v) for k, v in given.items()} if isinstance(given, Mapping) else [_value(v) for v in given]
    return RuntimeContext(name, path, start(path, values, timeout / 1e6))


def embedded_runtime_call(inputs: Sequence[Any], context: RuntimeContext) -> list[tf.Tensor]:
    """Call a started program, from any thread, or inside a tf.function.

    Args:
        inputs: a tensor for each input, of its shape and dtype.
        context: the result of `embedded_runtime_start`.

    Returns:
        A list of tensors, the outputs.

    Raises:
        ValueError: too few or too many inputs, or one of another shape.
        TypeError: an input of another dtype, or `context` is no context.
    """
    if not isinstance(context, RuntimeContext):
        raise TypeError(f"Expected a context of embedded_runtime_start. Received: {context!r}.")
    runtime = context.runtime
    if len(inputs) != len(runtime.inputs):
        raise ConfigurationError(
            f"Embedded application runtime expects {len(runtime.inputs)} inputs, "
            f"{[info.name for info in runtime.inputs]}. Received: {len(inputs)}."
        )
    tensors = [tf.convert_to_tensor(each) for each in inputs]
    for position, (info, tensor) in enumerate(zip(runtime.inputs, tensors, strict=True)):
        _check(position, info, tensor)
    if tf.executing_eagerly():
        return [tf.constant(result) for result in runtime.run([tensor.numpy() for tensor in tensors])]
    results = tf.numpy_function(lambda *arrays: runtime.run(list(arrays)), tensors, context.output_types())
    results = list(results) if isinstance(results, list | tuple) else [results]
    return [tf.ensure_shape(result, info.shape) for result, info in zip(results, runtime.outputs, strict=True)]


def embedded_runtime_start_and_call(
    executable_file: object,
    startup_inputs: Inputs,
    call_inputs: Sequence[Any],
    name: str = "engine",
    timeout: int = 5000,
) -> list[tf.Tensor]:
    """Start a program and call it once: `embedded_runtime_start`, then `embedded_runtime_call`.

    Args:
        executable_file: the path, a string or a scalar tensor of strings.
        startup_inputs: values of inputs that are not streamed, a list or a dict by name, as the `inputs` of
            `embedded_runtime_start`.
        call_inputs: a tensor for each input of the call, of its shape and dtype.
        name: the name of the program in messages.
        timeout: microseconds after which a program that waits for further requests gets zeros.

    Returns:
        A list of tensors, the outputs.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is no executable, `timeout` is negative, or inputs are missing, unknown or misshapen.
        TypeError: an input of another dtype.
    """
    return embedded_runtime_call(call_inputs, embedded_runtime_start(executable_file, startup_inputs, name, timeout))


def embedded_runtime_stop(context: RuntimeContext) -> None:
    """Raises NotImplementedError: a program stops when its context has no references left.

    Args:
        context: the result of `embedded_runtime_start`; its name is in the error.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        f"Expected programs to stop by themselves. Received: a request to stop {getattr(context, 'name', context)!r}. "
        "Delete the context."
    )


def _check(position: int, info: TensorInfo, tensor: tf.Tensor) -> None:
    if tensor.dtype != tf.dtypes.as_dtype(info.dtype):
        advice = "" if tensor.dtype in DTYPES else f" Programs take {', '.join(d.name for d in DTYPES)}."
        raise TypeError(
            f"Expected input {info.name!r} at position {position} to be {info.dtype}. "
            f"Received: {tensor.dtype.name}. Cast it with tf.cast.{advice}"
        )
    if not tensor.shape.is_compatible_with(info.shape):
        raise ConfigurationError(
            f"Mismatched input shape at position {position} ({info.name!r}). Expected {list(info.shape)}. "
            f"Received: {tensor.shape}."
        )


def _spec(info: TensorInfo) -> tf.TensorSpec:
    return tf.TensorSpec(info.shape, tf.dtypes.as_dtype(info.dtype), info.name)


def _value(value: TensorLike) -> Any:
    return np.asarray(value) if isinstance(value, tf.Tensor | tf.Variable) else value
