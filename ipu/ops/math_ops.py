"""IPU specific maths operations: the public names of `tensorflow.python.ipu.math_ops` (Python API, 18.14.5)."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.operators.serialization import serialized_product
from ipu._internal.types import TensorLike

__all__ = ["segment_sum", "serialized_matmul"]
__getattr__, __dir__ = public_names(__name__, __all__)


def serialized_matmul(
    a: TensorLike,
    b: TensorLike,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Computes `a` times `b` as a loop over smaller products; its gradients are loops, too.

    Args:
        a: float16, float32 or int32 [..., m, k], or [..., k, m] if it is to be transposed.
        b: [..., k, n] of the same type and outer dimensions, or [..., n, k] if it is to be transposed.
        serialization_factor: the number of smaller products.
        serialization_dimension: "a_columns" for m, "a_rows_b_columns" for k or "b_rows" for n. The factor divides it.
        transpose_a: whether to transpose the two inner dimensions of `a` before.
        transpose_b: whether to transpose the two inner dimensions of `b` before.
        name: optional op name.

    Returns:
        [..., m, n] of the type of `a`. Products over slices of k are added in the type of `a`.

    Raises:
        ValueError: ranks or shapes do not agree, there is no such dimension, or the factor does not divide it.
    """
    with tf.name_scope(name or "serialized_matmul"):
        a = tf.convert_to_tensor(a)
        b = tf.convert_to_tensor(b, a.dtype)
        if transpose_a:
            a = tf.linalg.matrix_transpose(a)
        if transpose_b:
            b = tf.linalg.matrix_transpose(b)
        return serialized_product(a, b, serialization_factor, serialization_dimension)


def segment_sum(data: TensorLike, segment_ids: TensorLike, num_segments: int, name: str | None = None) -> tf.Tensor:
    """Sums the rows of each segment.

    Args:
        data: [N, ...] of a numeric type.
        segment_ids: the number of each row's segment, int32 [N], in ascending order. Rows with a negative number are
            left out.
        num_segments: the number of segments.
        name: optional op name.

    Returns:
        [num_segments, ...] of the type of `data`; zeros for segments without a row.
    """
    return tf.math.unsorted_segment_sum(data, segment_ids, num_segments, name or "segment_sum")
