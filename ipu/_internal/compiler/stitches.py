"""tf.dynamic_stitch of what tf.dynamic_partition has divided at run time: XLA must know the indices.

Look-ups in partitioned tables, and the gradient of tf.dynamic_partition, end in one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.compiler.constant_values import known
from ipu._internal.types import TensorLike

UNCHANGED = frozenset({"Identity", "Reshape"})
"""Operations whose result has the elements of their first input."""


def stitched(original: Callable[..., Any], indices: Any, data: Any, name: str | None = None) -> Any:
    """tf.dynamic_stitch, by scatters where indices are computed and their greatest is known.

    Calls the `original` where it is not, or where all indices are constants.
    """
    indices, data = list(map(tf.convert_to_tensor, indices)), list(map(tf.convert_to_tensor, data))
    size = None if all(known(each) is not None for each in indices) else _size(indices)
    if size is None:
        return original(indices, data, name=name)
    with tf.name_scope(name or "DynamicStitch"):
        row = data[0].shape[indices[0].shape.rank :]
        found = tf.zeros([size, *row], data[0].dtype)
        for places, rows in zip(indices, data, strict=True):
            rows = tf.reshape(rows, tf.concat([[-1], row], 0))
            found = tf.tensor_scatter_nd_update(found, tf.reshape(places, [-1, 1]), rows)
        return found


def _size(indices: Sequence[tf.Tensor]) -> int | None:
    """The greatest index and one; None if a part of a division is missing, or if its values are unknown."""
    greatest, divided, present = -1, {}, set()
    for each in indices:
        if (constant := known(each)) is not None:
            greatest = max(greatest, int(np.max(constant, initial=-1)))
        elif each.op.type == "DynamicPartition":
            divided[id(each.op)] = each.op
            present.add((id(each.op), each.value_index))
        else:
            return None
    for key, operation in divided.items():
        most = _most(operation.inputs[0])
        if most is None or any((key, k) not in present for k in range(len(operation.outputs))):
            return None
        greatest = max(greatest, most)
    return greatest + 1


def _most(values: TensorLike) -> int | None:
    """The greatest of values that are constants, or that count from zero."""
    if (constant := known(values)) is not None:
        return int(np.max(constant, initial=-1))
    count, operation = values.shape.num_elements(), values.op
    while operation.type in UNCHANGED:
        operation = operation.inputs[0].op
    if count is None or operation.type != "Range":
        return None
    start, _, delta = map(tf.get_static_value, operation.inputs)
    return count - 1 if start == 0 and delta == 1 else None
