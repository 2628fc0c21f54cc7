"""Signatures of loaded SavedModels for `IPUStrategy.run`: the program on the engine, other steps on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework import function_def_to_graph, ops

from ipu._internal.serving.compiled import freeze_step
from ipu._internal.serving.program_calls import SCOPE, call_program

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


def running(function: ConcreteFunction) -> Callable[..., Any] | None:
    """A function that runs the exported program that a concrete function calls; None if it calls none.

    It raises UnsupportedOperation, when called, for a program that the engine cannot run.
    """
    operations = function.graph.get_operations()
    if any(_in_scope(operation) and operation.type in PYTHON for operation in operations):
        return function
    return tf.function(_evaluating(function), autograph=False) if _calls_program(function.graph) else None


def _calls_program(graph: tf.Graph) -> bool:
    return any(
        _in_scope(operation) or _calls_program(_called(operation))
        for operation in graph.get_operations()
        if operation.type in CALLS
    )


def _evaluating(signature: ConcreteFunction) -> Callable[..., Any]:
    names, graph = signature._arg_keywords, signature.graph

    def run(*positional: tf.Tensor, **named: tf.Tensor) -> Any:
        given = {**dict(zip(names, positional, strict=False)), **named}
        if len(positional) > 1 or set(given) != set(names):
            raise TypeError(f"Expected the arguments {', '.join(names)}, by name. Received: {', '.join(given)}.")
        arguments = [
            tf.ensure_shape(tf.convert_to_tensor(given[name], symbol.dtype), symbol.shape)
            for name, symbol in zip(names, graph.inputs, strict=False)
        ]
        results = evaluate(graph, [*arguments, *signature.captured_inputs])
        return tf.nest.pack_sequence_as(signature.structured_outputs, results)

    return run


def evaluate(graph: tf.Graph, arguments: Sequence[Any]) -> list[Any]:
    """The results of a function's graph, rebuilt in the current one, with its program's call on the engine."""
    values = {symbol.ref(): value for symbol, value in zip(graph.inputs, arguments, strict=True)}
    for operation in graph.get_operations():
        if operation.type == "Placeholder":
            continue
        inputs = [values[tensor.ref()] for tensor in operation.inputs]
        is_call = operation.type in CALLS
        if is_call and _in_scope(operation):
            results = _on_engine(_called(operation), inputs)
        elif is_call:
            results = evaluate(_called(operation), inputs)
        else:
            results = _copy(operation, inputs).outputs
        values.update((tensor.ref(), value) for tensor, value in zip(operation.outputs, results, strict=True))
    return [values[tensor.ref()] for tensor in graph.outputs]


def _on_engine(graph: tf.Graph, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    shapes = [symbol.shape.merge_with(value.shape) for symbol, value in zip(graph.inputs, inputs, strict=True)]
    specs = [tf.TensorSpec(shape, value.dtype) for shape, value in zip(shapes, inputs, strict=True)]

    def program(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return evaluate(graph, tensors)

    with tf.init_scope():
        outputs = tf.function(program, autograph=False).get_concrete_function(*specs).outputs
        run = freeze_step(program, specs).compile()
    return call_program(run, inputs, [tf.TensorSpec(output.shape, output.dtype) for output in outputs])


def _copy(operation: tf.Operation, inputs: Sequence[Any]) -> Any:
    # Attributes that begin with _ belong to the original graph: its devices, its colocations.
    attributes = {name: value for name, value in operation.node_def.attr.items() if not name.startswith("_")}
    dtypes = [tensor.dtype.base_dtype for tensor in operation.outputs]
    graph = ops.get_default_graph()
    return graph._create_op_internal(operation.type, inputs, dtypes, attrs=attributes, op_def=operation.op_def)


def _called(operation: tf.Operation) -> Any:
    name = operation.get_attr("f").name
    with tf.init_scope():  # functions of a loaded SavedModel are known to the eager context, to no graph
        return function_def_to_graph.function_def_to_graph(context.context().get_function_def(name))


def _in_scope(operation: tf.Operation) -> bool:
    return SCOPE in operation.name.split("/")
