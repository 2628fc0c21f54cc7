"""Calls of host functions in traced functions: operations in program order, whose results may get their shapes late."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import gen_array_ops

from engine.errors import UnsupportedOperation
from engine.host_functions import HostFunction
from engine.ir.device_operations import HOST_FUNCTION
from engine.ir.shape import ELEMENT_TYPES
from ipu._internal.compiler.device_calls import device_call, ordered_call
from ipu._internal.compiler.marks import in_marked_step
from ipu._internal.compiler.tokens import own_chain

Gradient = Callable[..., list[Any]]
TOKEN = tf.TensorSpec([], tf.int32)
_FUNCTIONS = "_ipu_host_functions"


def host_call(
    function: HostFunction,
    operands: Sequence[tf.Tensor],
    results: Sequence[tf.TensorSpec],
    gradient: Gradient,
    ordered: bool = True,
) -> tuple[list[tf.Tensor], tf.Operation]:
    """The results of a call of `function` in the function being traced, and an operation to depend on.

    It is called once whenever the program reaches it, in program order with queues and other calls; several replicas
    call one after the other. Results of unknown shape get it by `set_shape` or tf.ensure_shape. `gradient` maps the
    gradients of the results to those of the operands. A call that is not `ordered` follows its operands alone, and
    happens only where its results are needed. The graphs being traced keep the function alive.

    Raises UnsupportedOperation for operands and results that are no numbers or booleans.
    """
    for what, each in [("operands", t) for t in operands] + [("results", s) for s in results]:
        if not (each.dtype.is_numpy_compatible and np.dtype(each.dtype.as_numpy_dtype) in ELEMENT_TYPES):
            raise UnsupportedOperation(
                f"Expected {what} of numbers or booleans in a call of {function.name!r}. Received: dtype "
                f"{each.dtype.name}. Keep text and resources on the host: the function may read them by itself."
            )
    number = _keep(function)
    # A step of Keras is cut at its gradients and into stages: each call has its own order there.
    chain = own_chain(f"host_call_{number}") if in_marked_step() else contextlib.nullcontext()
    config = {"function": function.key, "name": function.name}
    with chain, record.stop_recording():
        if ordered:
            found, operation = ordered_call(HOST_FUNCTION, operands, config, results)
        else:
            *found, token = device_call(HOST_FUNCTION, [*operands, tf.constant(0)], config, [*results, TOKEN])
            operation = token.op
        tensors = [_of_shape(tensor, spec.shape) for tensor, spec in zip(found, results, strict=True)]
    if operands and tensors:
        tensors = list(_with_gradient(tensors, operands, gradient))
    for index, (tensor, spec) in enumerate(zip(tensors, results, strict=True)):
        if not spec.shape.is_fully_defined():
            tensor.set_shape(spec.shape)
            tensor.set_shape = partial(_declare_shape, found[index].op, index, tensor, tensor.set_shape)
            _pending(list(_graphs())[-1]).append((function.name, index, tensor))
    return tensors, operation


def _of_shape(tensor: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    """The tensor, or one of unknown shape if its shape is incomplete, which a custom call takes for a scalar's."""
    return tensor if shape.is_fully_defined() else gen_array_ops.placeholder_with_default(tensor, tf.TensorShape(None))


def _with_gradient(tensors: Sequence[tf.Tensor], operands: Sequence[tf.Tensor], gradient: Gradient) -> Any:
    @tf.custom_gradient
    def linked(*_: tf.Tensor) -> Any:
        return tuple(map(tf.identity, tensors)), gradient

    return linked(*operands)


def declare_shape(tensor: object, shape: Any) -> None:
    """Gives a call's result its shape, where it has none yet; does nothing with other tensors."""
    declare = getattr(tensor, "set_shape", None)
    if isinstance(declare, partial) and declare.func is _declare_shape:
        declare(shape)


def check_shapes(graph: tf.Graph) -> None:
    """Raises UnsupportedOperation for a result of a call in a traced function that has no static shape."""
    for name, index, tensor in _pending(graph):
        if not tensor.shape.is_fully_defined():
            raise UnsupportedOperation(
                f"Expected a static shape of result {index} of {name!r}. Received: {tensor.shape}. Declare it: "
                f"tf.TensorSpec(shape, dtype) in Tout of tf.py_function, or set_shape() or tf.ensure_shape() on the "
                f"result."
            )


def _declare_shape(
    call: tf.Operation, index: int, tensor: tf.Tensor, set_shape: Callable[[Any], None], shape: Any
) -> None:
    """Sets the shape of a result, and that of the custom call which it comes from."""
    set_shape(shape)
    shapes = call.get_attr("result_shapes")
    shapes[index] = tensor.shape
    call._set_shape_list_attr("result_shapes", [tf.TensorShape(each) for each in shapes])


def _pending(graph: tf.Graph) -> list[tuple[str, int, tf.Tensor]]:
    if not hasattr(graph, "_ipu_shapes_pending"):
        graph._ipu_shapes_pending = []
    pending: list[tuple[str, int, tf.Tensor]] = graph._ipu_shapes_pending
    return pending


def _keep(function: HostFunction) -> int:
    """Keeps a function alive with all graphs being built; returns its number in the outermost one."""
    number = 0
    for graph in _graphs():
        functions = getattr(graph, _FUNCTIONS, ())
        setattr(graph, _FUNCTIONS, [*functions, function])
        number = len(functions)
    return number


def _graphs() -> Iterator[tf.Graph]:
    """The graph being built and those around it, the outermost last."""
    graph = ops.get_default_graph()
    yield graph
    while isinstance(graph, func_graph.FuncGraph) and graph.outer_graph.building_function:
        graph = graph.outer_graph
        yield graph
