"""Writes to a tf.TensorArray with dynamic_size=True, whose list XLA does not lengthen: it would write its last element.

The list grows where TensorFlow knows its length and the index while it traces. A loop's list is as long as its indices
need from the start, if they follow from counters. Elsewhere the program checks the index when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import cond_v2, gen_list_ops, list_ops, tensor_array_ops

from engine.errors import UnsupportedOperation
from engine.ir import Module
from engine.ir.value_checks import VALUE_CHECK, ValueCheck, value_checks
from ipu._internal.compiler.device_calls import device_call
from ipu._internal.compiler.loop_counters import LOOPS, LoopCounters, source
from ipu._internal.compiler.unequal_arrays import note_shape
from ipu._internal.compiler.value_checks import LEAST, checking
from ipu._internal.types import TensorLike

BRANCHES = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
UNCHANGED = frozenset({"Identity", "TensorListSetItem"})
"""Operations whose result is as long as their first input, a list."""
WRITE = "tf.TensorArray.write"
WITHIN = ValueCheck(
    kind="range",
    operation=WRITE,
    message="Expected an index below the size of a tf.TensorArray, which grows where its size and the index are "
    "constants or count a loop's iterations. Received: index size + {value}. Give tf.TensorArray the number of "
    "elements as its size. In place of tf.compat.v1.nn.raw_rnn, which makes its own, use a tf.while_loop or "
    "tf.compat.v1.nn.dynamic_rnn.",
    lows=(LEAST,),
)
INDEX = "_ipu_index"
"""The attribute of an operation that writes an element: its index before it is checked."""


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
        given = index = tf.convert_to_tensor(index)
        place, size, item = tf.get_static_value(index), _length(input_handle), tf.convert_to_tensor(item)
        if place is None or size is None:
            index = _within(index, gen_list_ops.tensor_list_length(input_handle))
        elif place >= size:
            input_handle = _longer(input_handle, size, int(place) + 1, item)
    made = original(input_handle, index, item, name=name)
    note_shape(made, input_handle, item)
    if resize_if_index_out_of_bounds:
        setattr(made.op, INDEX, given)
    return made


def stack(
    original: Callable[..., Any],
    input_handle: Any,
    element_shape: TensorLike,
    element_dtype: tf.DType,
    num_elements: int | None = -1,
    name: str | None = None,
) -> Any:
    """TensorListStack, whose result has a static shape if the list's length is known.

    An empty list has got none: what has been written to it is an error when the program runs.
    """
    length = _length(input_handle) if num_elements in (None, -1) else None
    return original(input_handle, element_shape, element_dtype, length or num_elements, name)


def scatter(
    original: Callable[..., Any], input_handle: Any, tensor: TensorLike, indices: TensorLike, name: str | None = None
) -> Any:
    """TensorListScatterIntoExistingList, of which XLA has no kernel, where the list's length is known."""
    tensor, indices = tf.convert_to_tensor(tensor), tf.convert_to_tensor(indices)
    size, places, shape = _length(input_handle), tf.get_static_value(indices), tf.shape(tensor)[1:]
    if size is None or (places is None and not size):
        return original(input_handle, tensor, indices, name)
    length = size if places is None else max([size, *(int(each) + 1 for each in places)])
    if places is None:
        greatest = tf.reduce_max(indices)
        indices += _within(greatest, tf.constant(size)) - greatest
    if input_handle.op.type == "TensorListReserve":
        before = tf.zeros(tf.concat([[length], shape], 0), tensor.dtype)
    else:
        before = gen_list_ops.tensor_list_stack(_longer(input_handle, size, length, tensor[0]), shape, tensor.dtype)
    return gen_list_ops.tensor_list_from_tensor(tf.tensor_scatter_nd_update(before, indices[:, None], tensor), shape)


def lengthened(results: Any) -> Any:
    """The results of a loop, after the arrays of dynamic size among them have been given the length that they need."""
    return tf.nest.map_structure(_lengthened, results)


def _lengthened(result: Any) -> Any:
    if not isinstance(result, tf.TensorArray) or not getattr(result._implementation, "_dynamic_size", False):
        return result
    handle = source(result.flow)
    reserved = _reserved(handle.op.inputs[handle.value_index]) if handle.op.type in LOOPS else None
    if reserved is None:
        return result
    counters, number = LoopCounters(handle.op), handle.value_index
    count, is_exact = counters.most_iterations()
    if not count:
        return result
    writes = _writes(counters.body.outputs[number], counters, count)
    if writes is None or writes.given is not counters.body.inputs[number] or writes.least != writes.most:
        return result
    length = writes.most + 1
    if length <= int(tf.get_static_value(reserved.inputs[1])):
        return result
    with tf.control_dependencies(None):
        reserved._update_input(1, tf.constant(length, reserved.inputs[1].dtype))
    return result if is_exact else _whole(result, count, handle.op.outputs[0], length)


def _reserved(handle: Any) -> Any:
    """The operation that has made a list, which only loops and writes have taken since; None for others."""
    while len(handle.consumers()) == 1:
        operation, number = handle.op, handle.value_index
        if operation.type == "TensorListReserve":
            return operation if tf.get_static_value(operation.inputs[1]) is not None else None
        if operation.type not in UNCHANGED | LOOPS:
            return None
        handle = operation.inputs[number]
    return None


@dataclass
class _Writes:
    """The writes between a list that a loop's body, or a branch in it, is `given`, and its result.

    `least` and `most` are limits of the greatest index in all iterations. They differ if branches do.
    """

    given: Any
    least: int = -1
    most: int = -1

    def add(self, least: int, most: int) -> None:
        self.least, self.most = max(self.least, least), max(self.most, most)


def _writes(result: Any, counters: LoopCounters, count: int) -> _Writes | None:
    """The writes in `count` iterations; None if an index is unknown, or if other operations take the list."""
    found = _Writes(result)
    while found.given.op.type != "Placeholder":
        operation = found.given.op
        if operation.type in BRANCHES:
            graphs = cond_v2.get_func_graphs(operation)
            ways = [_writes(graph.outputs[found.given.value_index], counters, count) for graph in graphs]
            places = {_place(graph, way) for graph, way in zip(graphs, ways, strict=True)}
            if len(places) > 1 or None in places:
                return None
            found.add(min(way.least for way in ways if way), max(way.most for way in ways if way))
            found.given = operation.inputs[1 + (places.pop() or 0)]
            continue
        if operation.type not in UNCHANGED:
            return None
        if operation.type == "TensorListSetItem":
            greatest = counters.greatest(getattr(operation, INDEX), count) if hasattr(operation, INDEX) else None
            if greatest is None:
                return None
            found.add(greatest, greatest)
        found.given = operation.inputs[0]
    return found


def _place(graph: Any, writes: _Writes | None) -> int | None:
    """The number of the list, among the inputs of a branch, that it writes."""
    return next((k for k, each in enumerate(graph.inputs) if writes and each is writes.given), None)


def _length(handle: Any) -> int | None:
    """The length of a list, None where it is not known while TensorFlow traces, as in the body of a loop."""
    operation, number = handle.op, handle.value_index
    while operation.type in UNCHANGED or operation.type in LOOPS:
        handle = operation.inputs[number]
        operation, number = handle.op, handle.value_index
    if operation.type == "TensorListFromTensor":
        return operation.inputs[0].shape[0]
    if operation.type != "TensorListReserve":
        return None
    if operation.inputs[1].op.type == "TensorListLength":
        return _length(operation.inputs[1].op.inputs[0])
    known = tf.get_static_value(operation.inputs[1])
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
    return _checked(index - length, WITHIN) + length


def _checked(number: tf.Tensor, check: ValueCheck) -> tf.Tensor:
    """The number, checked when the program runs."""
    spec = tf.TensorSpec([], number.dtype)
    (passed,) = device_call(VALUE_CHECK, [number], asdict(check), [spec], has_side_effect=True)
    return passed


def _whole(array: tf.TensorArray, count: int, iterations: tf.Tensor, length: int) -> tf.TensorArray:
    """The array of a loop, whose number of iterations is checked to be the greatest one when the program runs."""
    all_of_them = ValueCheck(
        kind="range",
        operation=WRITE,
        message=f"Expected all {count} iterations of a loop that writes a tf.TensorArray with dynamic_size=True, "
        f"as the array's size is static. Received: {{value}}. Give tf.TensorArray the size {length}, and leave out the "
        f"elements that are not written.",
        lows=(count,),
        bounds=(count + 1,),
    )
    last = _checked(iterations, all_of_them) + (length - 1 - count)
    item = list_ops.tensor_list_get_item(array.flow, last, array.dtype, array.element_shape)
    return tensor_array_ops.build_ta_with_new_flow(array, list_ops.tensor_list_set_item(array.flow, last, item))


def require_fixed_sizes(module: Module) -> None:
    """Raises UnsupportedOperation for checks of indices in a module, that of a pipeline, which checks no values."""
    if any(ValueCheck.of(each).operation == WRITE for each in value_checks(module)):
        raise _unchecked("a pipeline")


def _unchecked(program: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"Expected a tf.TensorArray with dynamic_size=False in a loop of {program}, which does not check indices. "
        "Received: dynamic_size=True. Leave it out, and give the array the number of elements as its size."
    )
