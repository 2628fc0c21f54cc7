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
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
LOOPS = ("While", "StatelessWhile")
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


def running(function: ConcreteFunction) -> Callable[..., Any] | None:
    """A function that runs the exported program that a concrete function calls; None if it calls none.

    It raises UnsupportedOperation, when called, for a program that the engine cannot run.
    """
    if any(_in_scope(operation) and operation.type in PYTHON for operation in function.graph.get_operations()):
        return function
    return tf.function(_evaluating(function), autograph=False) if _calls_program(function.graph) else None


def _calls_program(graph: tf.Graph) -> bool:
    return any(
        (operation.type in CALLS and _in_scope(operation)) or any(map(_calls_program, _called(operation)))
        for operation in graph.get_operations()
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
            results = _on_engine(_called(operation)[0], inputs)
        elif is_call:
            results = evaluate(_called(operation)[0], inputs)
        elif operation.type in BRANCHES + LOOPS and any(map(_calls_program, _called(operation))):
            results = _chosen(operation, inputs) if operation.type in BRANCHES else _repeated(operation, inputs)
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


def _chosen(operation: tf.Operation, inputs: Sequence[Any]) -> list[Any]:
    """The results of a branch, rebuilt with the functions that it may call."""
    choice, *arguments = inputs
    graphs = _called(operation)
    branches = [lambda graph=graph: evaluate(graph, arguments) for graph in graphs]
    if operation.type in ("If", "StatelessIf"):
        return tf.nest.flatten(tf.cond(tf.cast(choice, tf.bool), *branches))
    return tf.nest.flatten(tf.switch_case(choice, branches))


def _repeated(operation: tf.Operation, inputs: Sequence[Any]) -> list[Any]:
    """The results of a loop, rebuilt with its condition and its body."""
    condition, body = _called(operation)
    return list(
        tf.while_loop(
            lambda *values: evaluate(condition, values)[0],
            lambda *values: evaluate(body, values),
            list(inputs),
            shape_invariants=[tensor.shape for tensor in operation.outputs],
        )
    )


def _called(operation: tf.Operation) -> list[Any]:
    """The graphs of the functions, of the branches, or of the condition and then the body, that an operation calls."""
    named = {"f": CALLS, "then_branch": BRANCHES[:2], "else_branch": BRANCHES[:2], "branches": BRANCHES[2:]}
    named |= {"cond": LOOPS, "body": LOOPS}
    values = [operation.get_attr(attribute) for attribute, types in named.items() if operation.type in types]
    functions = [each for value in values for each in (value if isinstance(value, list) else [value])]
    with tf.init_scope():  # functions of a loaded SavedModel are known to the eager context, to no graph
        definitions = [context.context().get_function_def(each.name) for each in functions]
        return [function_def_to_graph.function_def_to_graph(definition) for definition in definitions]


def _in_scope(operation: tf.Operation) -> bool:
    return SCOPE in operation.name.split("/")
