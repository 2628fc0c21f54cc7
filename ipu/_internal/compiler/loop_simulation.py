"""The number of iterations of a loop that ends by constants alone, such as the finished sequences of raw_rnn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

MOST_SIMULATED = 1 << 12
"""Loops of more iterations count as unknown; NumPy takes some microseconds for each operation."""
MOST_ELEMENTS = 1 << 12
Placeholders = Mapping[int, int]
"""The number of each of a graph's inputs by its identity."""


def _reduced(reduction: Callable[..., Any]) -> Callable[..., Any]:
    return lambda values, axes: reduction(values, axis=tuple(np.reshape(axes, [-1]).tolist()))


_ARRAY_OPERATIONS: dict[str, Callable[..., Any]] = {
    "All": _reduced(np.all),
    "Any": _reduced(np.any),
    "SelectV2": np.where,
}


def iterations(
    operation: tf.Operation, condition: Any, body: Any, operations: Mapping[str, Callable[..., Any]]
) -> int | None:
    """The number of iterations of a While operation with these graphs, run by NumPy's `operations`; None if it depends
    on other operations or on values at run time.
    """
    run = _Evaluator({**operations, **_ARRAY_OPERATIONS})
    first = {id(each): number for number, each in enumerate(condition.inputs)}
    later = {id(each): number for number, each in enumerate(body.inputs)}
    pending, needed = run.inputs(condition.outputs[0], first), set[int]()
    while pending:
        number = pending.pop()
        if number is None:
            return None
        if number not in needed:
            needed.add(number)
            pending |= run.inputs(body.outputs[number], later)
    if any(None in run.inputs(operation.inputs[number], {}) for number in needed):
        return None
    with np.errstate(all="ignore"):  # integers wrap, as TensorFlow's
        state = {number: run.value(operation.inputs[number], {}, {}) for number in needed}
        for count in range(MOST_SIMULATED):
            if not run.value(condition.outputs[0], first, state):
                return count
            state = {number: run.value(body.outputs[number], later, state) for number in needed}
    return None


class _Evaluator:
    """Evaluates tensors of small integers and booleans."""

    def __init__(self, operations: Mapping[str, Callable[..., Any]]) -> None:
        self._operations = operations

    def inputs(self, tensor: tf.Tensor, placeholders: Placeholders) -> set[int | None]:
        """The numbers of the inputs on which a tensor depends; None stands for values that are unknown."""
        found, pending, seen = set[int | None](), [tensor], set[int]()
        while pending:
            each = pending.pop()
            if id(each) in placeholders:
                found.add(placeholders[id(each)])
            elif id(each) not in seen and tf.get_static_value(each) is None:
                seen.add(id(each))
                is_small = (each.dtype.is_integer or each.dtype.is_bool) and each.shape.is_fully_defined()
                if not is_small or each.shape.num_elements() > MOST_ELEMENTS or not self._knows(each.op):
                    return {None}
                pending += each.op.inputs
        return found

    def _knows(self, operation: tf.Operation) -> bool:
        keeps = operation.type in ("All", "Any") and operation.get_attr("keep_dims")
        return (operation.type in self._operations or operation.type == "Cast") and not keeps

    def value(self, tensor: tf.Tensor, placeholders: Placeholders, state: Mapping[int, Any]) -> Any:
        """The value of a tensor with inputs of these values."""
        if id(tensor) in placeholders:
            return state[placeholders[id(tensor)]]
        if (static := tf.get_static_value(tensor)) is not None:
            return np.asarray(static)
        operands = [self.value(each, placeholders, state) for each in tensor.op.inputs]
        if tensor.op.type == "Cast":
            return np.asarray(operands[0]).astype(tensor.dtype.as_numpy_dtype)
        return self._operations[tensor.op.type](*operands)
