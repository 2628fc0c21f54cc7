"""The structure of a traced function's graph: its operations in all that it calls, and a value apart from names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import resource_variable_ops

CALLED = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "While": ("body", "cond"),
    "StatelessWhile": ("body", "cond"),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
}
"""The attributes of operations that name functions."""
CHOOSING = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
"""Operations whose first input chooses the function, which takes the others."""
NAMES = frozenset({"_user_specified_name"})
"""Attributes of operations that have no effect."""


def called_graphs(operation: tf.Operation) -> list[Any]:
    """The graphs of the functions, branches and bodies of loops that an operation calls."""
    names = [
        each.name
        for attribute in CALLED.get(operation.type, ())
        for value in [operation.get_attr(attribute)]
        for each in (value if isinstance(value, list) else [value])
    ]
    found = [getattr(operation.graph._get_function(name), "graph", None) for name in names]
    return [graph for graph in found if graph is not None]


def origin(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor outside of all functions for which a captured tensor stands."""
    while not isinstance(tensor, EagerTensor) and isinstance(tensor.graph, FuncGraph):
        outside = next((outer for outer, inner in tensor.graph.captures if inner is tensor), None)
        if outside is None:
            break
        tensor = outside
    return tensor


def nested_operations(
    operations: Iterable[tf.Operation], arguments: Mapping[int, tf.Tensor] | None = None
) -> Iterator[tuple[tf.Operation, list[tf.Tensor]]]:
    """Operations, and those of functions they call, each with its inputs: the call's, where they are arguments."""
    for operation in operations:
        inputs = [(arguments or {}).get(id(each), each) for each in operation.inputs]
        yield operation, inputs
        taken = inputs[operation.type in CHOOSING :]
        for graph in called_graphs(operation):
            given = {id(inner): outer for inner, outer in zip(graph.inputs, taken, strict=False)}
            yield from nested_operations(graph.get_operations(), given)


def structure_of(concrete: ConcreteFunction, definition: Any) -> Hashable:
    """A value that is equal for functions whose results and gradients are equal, given arguments and captures in order.

    `definition` is the GraphDef of the function's graph. None for a function that calls others, whose names differ from
    trace to trace.
    """
    if definition.library.function:
        return None
    numbers = {node.name: number for number, node in enumerate(definition.node)}
    nodes = tuple((node.op, node.device, _inputs(node, numbers), _attributes(node)) for node in definition.node)
    ends = tuple((numbers[tensor.op.name], tensor.value_index) for tensor in (*concrete.inputs, *concrete.outputs))
    variables = (outer for outer, _ in concrete.graph.captures if outer.dtype == tf.resource)
    return nodes, ends, len(concrete.inputs), tuple(_variable(handle) for handle in variables)


def _inputs(node: Any, numbers: dict[str, int]) -> Hashable:
    """The number of each operand's operation, with the rest of its name: "^" for control, the number of its result."""
    found = []
    for operand in node.input:
        name, _, result = operand.removeprefix("^").partition(":")
        found.append((numbers[name], result, operand.startswith("^")))
    return tuple(found)


def _attributes(node: Any) -> Hashable:
    values = ((name, value) for name, value in node.attr.items() if name not in NAMES)
    return frozenset((name, value.SerializeToString(deterministic=True)) for name, value in values)


def _variable(handle: tf.Tensor) -> Hashable:
    (data,) = resource_variable_ops.get_eager_safe_handle_data(handle).shape_and_type
    return data.SerializeToString(deterministic=True)
