"""Writes to a tf.TensorArray with dynamic_size=True, whose list XLA does not lengthen: it would write its last element.

The list grows where TensorFlow knows its length and the index while it traces. Elsewhere, as in loops, the program
checks the index when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_list_ops

from engine.errors import UnsupportedOperation
from engine.ir import Module
from engine.ir.value_checks import VALUE_CHECK, ValueCheck, value_checks
from ipu._internal.compiler.device_calls import device_call
from ipu._internal.compiler.value_checks import LEAST, checking
from ipu._internal.types import TensorLike

LOOPS = frozenset({"While", "StatelessWhile"})
UNCHANGED = frozenset({"Identity", "TensorListSetItem"})
"""Operations whose result is as long as their first input, a list."""
WITHIN = ValueCheck(
    kind="range",
    operation="tf.TensorArray.write",
    message="Expected an index below the size of a tf.TensorArray, which does not grow in a loop, nor where its size "
    "or the index is computed. Received: index size + {value}. Give tf.TensorArray the number of elements as its size.",
    lows=(LEAST,),
)


def set_item(
    original: Callable[..., Any],
    input_handle: Any,
    index: TensorLike,
    item: TensorLike,
    resize_if_index_out_of_bounds: bool = False,
    name: str | None = None,
) -> Any:
    """TensorListSetItem, with a longer list where the index is beyond a list that may grow."""
    if resize_if_index_out_of_bounds:
        place, size, item = tf.get_static_value(index), _length(input_handle), tf.convert_to_tensor(item)
        if place is None or size is None:
            index = _within(tf.convert_to_tensor(index), gen_list_ops.tensor_list_length(input_handle))
        elif place >= size:
            input_handle = _longer(input_handle, size, int(place) + 1, item)
    return original(input_handle, index, item, name=name)


def _length(handle: Any) -> int | None:
    """The length of a list, None where it is not known while TensorFlow traces, as in the body of a loop."""
    operation, number = handle.op, handle.value_index
    while operation.type in UNCHANGED or operation.type in LOOPS:
        handle = operation.inputs[number]
        operation, number = handle.op, handle.value_index
    if operation.type == "TensorListFromTensor":
        return operation.inputs[0].shape[0]
    known = tf.get_static_value(operation.inputs[1]) if operation.type == "TensorListReserve" else None
    return None if known is None else int(known)


def _longer(handle: Any, size: int, length: int, item: tf.Tensor) -> Any:
    """A list of `length` elements like `item`: those of a list of `size`, and zeros."""
    if not size:
        return gen_list_ops.tensor_list_reserve(tf.shape(item), length, item.dtype)
    stacked = gen_list_ops.tensor_list_stack(handle, tf.shape(item), item.dtype, size)
    zeros = tf.zeros(tf.concat([[length - size], tf.shape(item)], 0), item.dtype)
    return gen_list_ops.tensor_list_from_tensor(tf.concat([stacked, zeros], 0), tf.shape(item))


def _within(index: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """The index, checked when the program runs. Raises UnsupportedOperation for one that leaves this process."""
    if checking.value is False:
        raise _unchecked("an exported program")
    spec = tf.TensorSpec([], index.dtype)
    (beyond,) = device_call(VALUE_CHECK, [index - length], asdict(WITHIN), [spec], has_side_effect=True)
    return beyond + length


def require_fixed_sizes(module: Module) -> None:
    """Raises UnsupportedOperation for checks of indices in a module, that of a pipeline, which checks no values."""
    if any(ValueCheck.of(each) == WITHIN for each in value_checks(module)):
        raise _unchecked("a pipeline")


def _unchecked(program: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"Expected a tf.TensorArray with dynamic_size=False in a loop of {program}, which does not check indices. "
        "Received: dynamic_size=True. Leave it out, and give the array the number of elements as its size."
    )
