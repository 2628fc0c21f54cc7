"""Calls of functions of the host in the middle of a step, with gradients by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler.variables import in_symbolic_graph, tracing
from ipu._internal.custom_ops.library import check_attributes, declared_outputs, function_of
from ipu._internal.host_functions.calls import host_call
from ipu._internal.host_functions.python_functions import CopyingFunction
from ipu._internal.types import TensorLike


def cpu_user_operation(
    inputs: Sequence[TensorLike],
    library_path: Any,
    outs: Mapping[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Callback",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[tf.Tensor]:
    """Call a function on the host's processor as part of the execution, with the inputs (Python API, 18.14.1).

    The function gets copies of the inputs and fills the outputs, in program order with queues and other calls. A
    library's function has the documented C++ signature (docs/custom_vertices.md); it must not throw. A Python function
    takes an array for each input, and `attributes` by name if there are any; it returns an array, or a list of arrays.

    The gradient is the function `<op_name>_grad`. Its inputs are the gradients of all outputs, then the outputs, then
    the inputs; its outputs the partial derivatives, of the shapes and dtypes of the inputs.

    Args:
        inputs: the tensor inputs, of static shapes.
        library_path: the path of a shared library; or a Python module or object with the functions, or a callable.
        outs: {"output_types": [...], "output_shapes": [...]}; None declares no output.
        name: the name of the operation, the function's last argument.
        op_name: the name of the function.
        separate_gradients: whether the gradient is called once for each input, with one output; its name, the last
            argument, ends in `_grad_<index of the input>` then. If False, it is called once for all.
        inputs_with_gradients: the indices of the inputs that have a gradient; None is all of them.
        attributes: a text for the function.
        gradient_attributes: the same for its gradient.

    Returns:
        The tensor outputs.

    Raises:
        ConfigurationError: a function that does not exist, attributes that are no strings, `outs` without types and
            shapes, an index without input.
        tf.errors.NotFoundError: a library that does not exist, or cannot be loaded.
    """
    check_attributes(attributes=attributes, gradient_attributes=gradient_attributes)
    tensors, specs = [tf.convert_to_tensor(each) for each in inputs], declared_outputs(outs)
    trained = range(len(tensors)) if inputs_with_gradients is None else list(inputs_with_gradients)
    if any(not 0 <= index < len(tensors) for index in trained):
        raise ConfigurationError(
            f"Expected inputs_with_gradients below {len(tensors)}, the number of inputs. Received: {trained}."
        )
    results: list[tf.Tensor] = []

    def gradient(*upstream: Any) -> list[Any]:
        known = [tf.zeros_like(r) if d is None else d for d, r in zip(upstream, results, strict=True)]
        given = [*known, *results, *tensors]
        call = partial(_called, given, library_path, op_name=f"{op_name}_grad", attributes=gradient_attributes)
        wanted = {index: tf.TensorSpec(tensors[index].shape, tensors[index].dtype) for index in trained}
        if separate_gradients:
            found = [call(outputs=[spec], name=f"{name}_grad_{index}")[0] for index, spec in wanted.items()]
        else:
            found = call(outputs=list(wanted.values()), name=f"{name}_grad")
        by_index = dict(zip(wanted, found, strict=True))
        return [by_index.get(index) for index in range(len(tensors))]

    results += _called(tensors, library_path, op_name, specs, attributes, name, gradient)
    return results


def _called(
    inputs: Sequence[tf.Tensor],
    source: Any,
    op_name: str,
    outputs: Sequence[tf.TensorSpec],
    attributes: str | None,
    name: str,
    gradient: Any = None,
) -> list[tf.Tensor]:
    """The results of a call, with a gradient if it has one."""
    function = function_of(source, op_name, outputs, attributes, name)
    if in_symbolic_graph():
        return [tf.compat.v1.placeholder(each.dtype, each.shape) for each in outputs]
    if tracing():
        return host_call(CopyingFunction(name, function), inputs, outputs, gradient or _no_second(op_name))[0]

    @tf.custom_gradient
    def linked(*given: tf.Tensor) -> Any:
        found = tf.nest.flatten(tf.numpy_function(function, given, [each.dtype for each in outputs]))
        for tensor, spec in zip(found, outputs, strict=True):
            tensor.set_shape(spec.shape)
        return tuple(found), gradient or _no_second(op_name)

    return list(linked(*inputs))


def _no_second(op_name: str) -> Any:
    def refuse(*_: tf.Tensor) -> list[Any]:
        raise NotImplementedError(
            f"Expected first derivatives of a user operation. Received: a gradient of {op_name!r}. Write it in "
            f"TensorFlow's operations, or as an ipu.custom_ops.vertex, whose gradient can have one of its own."
        )

    return refuse
