"""Operations that a traced function executes on the host: a graph of their own, called in the middle of a step."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import wrap_function
from tensorflow.python.framework import func_graph, ops, tensor_util
from tensorflow.python.framework.auto_control_deps import AutomaticControlDependencies
from tensorflow.python.ops import gen_resource_variable_ops, gradients_util

from engine.errors import UnsupportedOperation
from engine.ir.shape import ELEMENT_TYPES
from ipu._internal.function_code import wraps
from ipu._internal.host_functions.calls import host_call
from ipu._internal.host_functions.python_functions import RECORD, EagerFunction
from ipu._internal.types import Nest

_RESULTS = "_ipu_results_outside"


class _Outside(threading.local):
    inside = False


_outside = _Outside()


def is_outside() -> bool:
    """Whether operations are being traced for the host."""
    return _outside.inside


@contextlib.contextmanager
def outside(name: str) -> Iterator[None]:
    """Collects operations of a function being traced, to be executed by TensorFlow on the host, while the context is
    open.

    They are called at the end, in program order with other calls. Their results may be used afterwards, and have
    gradients. Raises UnsupportedOperation for uses of variables other than reading them.
    """
    outer = ops.get_default_graph()
    part = func_graph.FuncGraph(name)
    effects = AutomaticControlDependencies()
    _outside.inside = True
    try:
        with part.as_default(), effects:
            yield
    finally:
        _outside.inside = False
    _Part(name, part, sorted(effects.ops_which_must_run, key=lambda each: each.name)).call_from(outer)


class _Part:
    """The operations of one scope."""

    def __init__(self, name: str, graph: func_graph.FuncGraph, effects: Sequence[tf.Operation]) -> None:
        self._name, self._graph, self._effects = name, graph, effects
        held = {id(inner): outer for outer, inner in graph.captures}
        self._inputs = [(inner, outer) for outer, inner in graph.captures if outer.dtype != tf.resource]
        self._handles = [(inner, outer) for outer, inner in graph.captures if outer.dtype == tf.resource]
        operations = [each for each in graph.get_operations() if each.type not in ("Placeholder", "Const")]
        for each in operations:
            for handle in (held[id(t)] for t in each.inputs if id(t) in held and t.dtype == tf.resource):
                self._read(each, handle)
        fed = {id(inner) for inner, _ in self._inputs}
        outputs = [tensor for each in operations for tensor in each.outputs]
        self._results = [each for each in outputs if id(each) not in fed and _is_array(each)]

    def _read(self, operation: tf.Operation, handle: tf.Tensor) -> None:
        """Makes the value of a variable an input."""
        if operation.type != "ReadVariableOp":
            raise UnsupportedOperation(
                f"Expected outside_compilation_scope {self._name!r} to read variables alone. Received: "
                f"{operation.type} ({operation.name}). Assign to the variable outside of the scope."
            )
        dtype = operation.outputs[0].dtype
        self._inputs.append((operation.outputs[0], gen_resource_variable_ops.read_variable_op(handle, dtype)))

    def call_from(self, outer: tf.Graph) -> None:
        """Calls the operations from the graph around them, where their results are used."""
        operands = [operand for _, operand in self._inputs]
        specs = [tf.TensorSpec(each.shape, each.dtype) for each in self._results]
        function = EagerFunction(self._name, self._run, [spec.dtype for spec in specs])
        *found, record = host_call(function, operands, [*specs, RECORD], function.gradient_of(operands))[0]
        function.record = record
        if not hasattr(outer, _RESULTS):
            _extend_gradients()
            setattr(outer, _RESULTS, {})
            outer.capture = partial(_capture, outer, outer.capture)
        # The graph is kept, so that no other tensor gets the id of one. Gradients read operands, too.
        known = [*zip(self._results, found, strict=True), *self._inputs, *self._handles]
        getattr(outer, _RESULTS)[self._graph] = {id(inner): value for inner, value in known}

    @cached_property
    def _function(self) -> Any:
        names = [each.name for each in (*self._results, *self._effects)]
        with tf.init_scope():
            inputs = [inner.name for inner, _ in self._inputs]
            return wrap_function.function_from_graph_def(self._graph.as_graph_def(), inputs, names)

    def _run(self, *operands: tf.Tensor) -> list[tf.Tensor]:
        return list(self._function(*operands)[: len(self._results)])


@functools.cache
def _extend_gradients() -> None:
    """Extends tf.gradients, and the optimizers that call it, to tensors inside a scope, once."""
    gradients = gradients_util._GradientsHelper

    @wraps(gradients)
    def of_results(ys: Nest, xs: Nest, *arguments: Any, **named: Any) -> Any:
        return gradients(*(tf.nest.map_structure(_result, each) for each in (ys, xs)), *arguments, **named)

    gradients_util._GradientsHelper = of_results


def _result(tensor: Any) -> Any:
    """The result of the host for a tensor inside a scope, and every other object itself."""
    graph = ops.get_default_graph()
    inside = getattr(tensor, "graph", None) in getattr(graph, _RESULTS, {})
    return graph.capture(tensor) if inside else tensor


def _is_array(tensor: tf.Tensor) -> bool:
    dtype = tensor.dtype
    known = dtype.is_numpy_compatible and np.dtype(dtype.as_numpy_dtype) in ELEMENT_TYPES
    return known and tensor.shape.is_fully_defined()


def _capture(outer: tf.Graph, capture: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Captures like FuncGraph.capture, with results of the host in place of the tensors inside a scope."""
    is_eager = isinstance(tensor, ops.EagerTensor)
    results = None if is_eager else getattr(outer, _RESULTS).get(getattr(tensor, "graph", None))
    if results is None:
        return capture(tensor, *args, **kwargs)
    if id(tensor) in results:
        found = results[id(tensor)]  # an operand may be a result of another scope
        return found if getattr(found, "graph", None) is outer else _capture(outer, capture, found, *args, **kwargs)
    constant = tensor_util.constant_value(tensor)
    if constant is None:
        raise UnsupportedOperation(
            f"Expected results of outside_compilation_scope to be numbers or booleans of static shape. Received: "
            f"{tensor.name!r} of {tensor.dtype.name}{tensor.shape}. Set its shape inside the scope, and use text there."
        )
    with outer.as_default():
        return tf.constant(constant, tensor.dtype)
