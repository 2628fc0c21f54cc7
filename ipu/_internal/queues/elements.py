"""Elements of an infeed: their structure, their leaves on the device, and their form as a loop body's arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util import structure

from engine.ir.shape import ELEMENT_TYPES, Shape
from ipu._internal.types import Nest

FEED_TYPES = (tf.int32, tf.float32, tf.float16, tf.bool, tf.int8, tf.uint8)


def check_specs(element_spec: Nest) -> None:
    """Raises ValueError for elements that are not dense tensors of fully defined shapes."""
    for leaf in tf.nest.flatten(element_spec):
        if not isinstance(leaf, tf.TensorSpec):
            raise ValueError(
                f"Expected the dataset of an infeed queue to give dense tensors. Received: {leaf}. "
                f"Convert them to dense tensors with map()."
            )
        if not leaf.shape.is_fully_defined():
            raise ValueError(
                f"Expected all shapes of the dataset of an infeed queue to be fully defined. Received: {leaf.shape}. "
                f"If the batch size is not known, use batch() with drop_remainder=True."
            )


def leaf_shapes(element_spec: Nest) -> list[Shape]:
    """The device's shapes of the leaves, which `check_specs` has accepted."""
    return [
        Shape(ELEMENT_TYPES[np.dtype(leaf.dtype.as_numpy_dtype)], tuple(leaf.shape.as_list()))
        for leaf in tf.nest.flatten(element_spec)
    ]


def is_feedable(element_spec: Nest) -> bool:
    """Whether `check_feedable` accepts the elements."""
    return all(leaf.dtype in FEED_TYPES and 0 not in leaf.shape.as_list() for leaf in tf.nest.flatten(element_spec))


def check_feedable(element_spec: Nest) -> None:
    """Raises FailedPreconditionError for dtypes the device does not take, InvalidArgumentError for empty tensors."""
    for index, leaf in enumerate(tf.nest.flatten(element_spec)):
        if leaf.dtype not in FEED_TYPES:
            remedy = "Encode text" if leaf.dtype == tf.string else "Cast it"
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"Unsupported datatype {leaf.dtype.name} on index {index} of feed operation. Expected one of "
                f"{', '.join(dtype.name for dtype in FEED_TYPES)}. {remedy} with map() in the dataset.",
            )
        if 0 in leaf.shape.as_list():
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"Expected tensors of at least one element on index {index} of feed operation. "
                f"Received: shape {leaf.shape}.",
            )


def packed(element_spec: Nest, leaves: list[Any]) -> Any:
    """The leaves in the data set's element structure."""
    return structure.from_compatible_tensor_list(element_spec, leaves)


def tuple_elements(element_spec: Nest) -> int:
    """Number of arguments of a loop's body for an element."""
    positional, named = arguments_of(element_spec)
    return len(positional) + len(named)


def arguments_of(element: Nest) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An element, or its spec, as arguments: a dict with string keys by name, a tuple as several, else one."""
    if isinstance(element, tuple) and len(element) == 1 and _is_named(element[0]):
        element = element[0]
    if _is_named(element):
        return (), dict(element)
    return (tuple(element) if isinstance(element, tuple | list) else (element,)), {}


def _is_named(element: Nest) -> bool:
    return isinstance(element, dict) and all(isinstance(key, str) for key in element)
