"""The structure of a traced function's graph, apart from names: functions of equal structure compute the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.ops import resource_variable_ops

NAMES = frozenset({"_user_specified_name"})
"""Attributes of operations that have no effect."""


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
