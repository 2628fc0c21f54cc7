"""Counters of loops that TensorFlow has traced: how many iterations run, and the values of integers in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import while_v2

from ipu._internal.compiler.loop_simulation import iterations

LOOPS = frozenset({"While", "StatelessWhile"})
MOST_ITERATIONS = 1 << 16
"""Loops of more iterations count as unknown."""
Values = np.ndarray | None
"""One value for each iteration, a scalar if all are the same, or None if they are unknown."""
OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Equal": np.equal,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Identity": np.asarray,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "LogicalAnd": np.logical_and,
    "LogicalNot": np.logical_not,
    "LogicalOr": np.logical_or,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "Neg": np.negative,
    "NotEqual": np.not_equal,
    "Sub": np.subtract,
}


class LoopCounters:
    """The iterations of a While operation: its `body` is a graph, whose inputs and results are the loop's."""

    def __init__(self, operation: tf.Operation) -> None:
        self._operation = operation
        self._condition = while_v2._get_graph(operation, "cond", "_cond_graph")
        self.body = while_v2._get_graph(operation, "body", "_body_graph")
        self._pending: set[int] = set()

    def most_iterations(self) -> tuple[int | None, bool]:
        """The greatest number of iterations, None if it is unknown, and whether no less can run."""
        goes_on, is_exact = self._goes_on(self._condition.outputs[0])
        if goes_on is None:
            count = iterations(self._operation, self._condition, self.body, OPERATIONS)
            return count, count is not None
        ended = np.flatnonzero(~np.broadcast_to(goes_on, [MOST_ITERATIONS + 1]))
        return (int(ended[0]) if ended.size else None), is_exact

    def _goes_on(self, condition: tf.Tensor) -> tuple[Values, bool]:
        """The values of a condition, and whether they are those of all its parts."""
        known = self.values(condition)
        if known is not None:
            return known, True
        inputs = condition.op.inputs
        if condition.op.type == "Identity":
            return self._goes_on(inputs[0])
        if condition.op.type != "LogicalAnd":
            return None, False
        parts = [part for part, _ in map(self._goes_on, inputs) if part is not None]
        return (np.logical_and.reduce(np.broadcast_arrays(*parts)) if parts else None), False

    def greatest(self, tensor: tf.Tensor, count: int) -> int | None:
        """The greatest value in the first `count` iterations, of which there are some; None if it is unknown."""
        values = self.values(tensor)
        return None if values is None else int(np.max(values[:count] if values.ndim else values))

    def values(self, tensor: tf.Tensor) -> Values:
        """The values of an integer or boolean scalar of the condition or of the body, at the beginning of the loop."""
        if tensor.shape.rank or not (tensor.dtype.is_integer or tensor.dtype.is_bool):
            return None
        static = tf.get_static_value(tensor)
        if static is not None:
            return np.asarray(static)
        if tensor.op.type == "Placeholder":
            return self._given(tensor)
        operands = [known for each in tensor.op.inputs if (known := self.values(each)) is not None]
        if len(operands) < len(tensor.op.inputs):
            return None
        if tensor.op.type == "Cast":
            return operands[0].astype(tensor.dtype.as_numpy_dtype)
        compute = OPERATIONS.get(tensor.op.type)
        return None if compute is None else compute(*operands)

    def _given(self, placeholder: tf.Tensor) -> Values:
        """The values of an input of the condition, of the body, or of a branch in it."""
        for graph in (self._condition, self.body):
            for number, each in enumerate(graph.inputs):
                if each is placeholder:
                    return self._variable(number) if number < len(self.body.inputs) else None
        outer = [captured for captured, inner in placeholder.graph.captures if inner is placeholder]
        return self.values(outer[0]) if outer else None

    def _variable(self, number: int) -> Values:
        """The values of a loop variable that stays as it is, or grows by a constant."""
        if number in self._pending:
            return None
        self._pending.add(number)
        try:
            first = self.values(self._operation.inputs[number])
            return None if first is None or first.ndim else self._counted(number, first)
        finally:
            self._pending.remove(number)

    def _counted(self, number: int, first: np.ndarray) -> Values:
        begin, end = self.body.inputs[number], source(self.body.outputs[number])
        if end is begin:
            return first
        if end.op.type not in ("Add", "AddV2", "Sub") or not any(source(each) is begin for each in end.op.inputs):
            return None
        sign = -1 if end.op.type == "Sub" else 1
        left, right = end.op.inputs
        if sign < 0 and source(left) is not begin:
            return None
        step = self.values(right if source(left) is begin else left)
        if step is None or step.ndim:
            return None
        return first + sign * step * np.arange(MOST_ITERATIONS + 1, dtype=begin.dtype.as_numpy_dtype)


def while_operation(result: Any) -> tf.Operation | None:
    """The While operation that has returned a tensor; None for other values."""
    operation = source(result).op if tf.is_tensor(result) else None
    return operation if operation is not None and operation.type in LOOPS else None


def source(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor before operations that return it as it is."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor
