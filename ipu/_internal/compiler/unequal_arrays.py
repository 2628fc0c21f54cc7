"""Elements of a tf.TensorArray with different shapes, which XLA's lists lack: they are read without a list.

That is possible where the elements and the index follow from operations of one function; XLA refuses other uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef

from ipu._internal.compiler.constant_values import known
from ipu._internal.types import TensorLike

ITEM_SHAPE, UNEQUAL = "_ipu_item_shape", "_ipu_unequal"
"""Attributes of an operation that writes: the shape of its element, and whether elements differ."""


def note_shape(written: Any, input_handle: Any, item: TensorLike) -> None:
    """Keeps the shape of an element that has been written to the list `input_handle`."""
    shape, before = tf.convert_to_tensor(item).shape, _made_by(input_handle)
    differs = getattr(before, ITEM_SHAPE, shape) != shape
    setattr(written.op, ITEM_SHAPE, shape)
    if differs or is_unequal(before.node_def):
        written.op._set_attr(UNEQUAL, AttrValue(b=True))


def is_unequal(node: NodeDef) -> bool:
    """Whether a node makes a list that may have elements with different shapes."""
    return node.op == "TensorListSplit" or (node.op == "TensorListSetItem" and UNEQUAL in node.attr)


def get_item(
    original: Callable[..., Any],
    input_handle: Any,
    index: TensorLike,
    element_shape: TensorLike,
    element_dtype: tf.DType,
    name: str | None = None,
) -> Any:
    """TensorListGetItem, without the list where elements differ."""
    place = known(index)
    elements = {} if place is None else _elements(input_handle)
    if int(place or 0) not in elements:
        return original(input_handle, index, element_shape, element_dtype, name)
    return tf.identity(elements[int(place)], name)


def concatenate(
    original: Callable[..., Any],
    input_handle: Any,
    element_shape: TensorLike,
    leading_dims: TensorLike,
    element_dtype: tf.DType,
    name: str | None = None,
) -> Any:
    """TensorListConcatV2, without the list where elements differ: the rows of all elements, and their lengths."""
    elements = _elements(input_handle)
    if not elements or sorted(elements) != list(range(len(elements))):
        return original(input_handle, element_shape, leading_dims, element_dtype, name)
    rows = [elements[k] for k in range(len(elements))]
    return tf.concat(rows, 0, name=name or "concat"), tf.constant([each.shape[0] for each in rows], tf.int64)


def _elements(handle: Any) -> dict[int, tf.Tensor]:
    """The elements of a list by index; none if they have one shape, or if an operation is unknown."""
    found: dict[int, tf.Tensor] = {}
    operation = _made_by(handle)
    if not is_unequal(operation.node_def):
        return {}
    while operation.type == "TensorListSetItem":
        place = known(operation.inputs[1])
        if place is None:
            return {}
        found.setdefault(int(place), operation.inputs[2])
        operation = _made_by(operation.inputs[0])
    if operation.type == "TensorListReserve":
        return found
    lengths = known(operation.inputs[2]) if operation.type == "TensorListSplit" else None
    if lengths is None or lengths.ndim != 1:
        return {}
    return dict(enumerate(tf.split(operation.inputs[0], lengths))) | found


def _made_by(handle: Any) -> Any:
    """The operation that made a list."""
    while handle.op.type == "Identity":
        handle = handle.op.inputs[0]
    return handle.op
