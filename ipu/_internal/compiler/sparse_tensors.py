"""Operations on sparse tensors that XLA lacks, with as many values as those that they are given.

Each function has the arguments of TensorFlow's operation after the `original`, which is called where a dense shape
that it needs is not known while TensorFlow traces. Indices may be computed at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.compiler.segments import WIDENED, known
from ipu._internal.types import TensorLike


def _reduce(
    by: Callable[..., tf.Tensor],
    original: Callable[..., Any],
    input_indices: TensorLike,
    input_values: TensorLike,
    input_shape: TensorLike,
    reduction_axes: TensorLike,
    keep_dims: bool = False,
    name: str | None = None,
) -> Any:
    """SparseReduceSum and SparseReduceMax: zeros where a sparse tensor has no values."""
    shape, axes = known(input_shape), known(reduction_axes)
    if shape is None or axes is None:
        return original(input_indices, input_values, input_shape, reduction_axes, keep_dims, name)
    with tf.name_scope(name or "SparseReduce"):
        reduced = {int(axis) % len(shape) for axis in np.reshape(axes, [-1])}
        kept = [k for k in range(len(shape)) if k not in reduced]
        groups, count = _groups(input_indices, shape, kept)
        values = tf.convert_to_tensor(input_values)
        found = by(values, groups, count)
        if by is tf.math.unsorted_segment_max:
            is_present = tf.math.unsorted_segment_sum(tf.ones_like(groups), groups, count) > 0
            found = tf.where(is_present, found, tf.zeros([], values.dtype))
        sizes = [int(size) if k in kept else 1 for k, size in enumerate(shape)]
        return tf.reshape(found, sizes if keep_dims else [sizes[k] for k in kept])


def _groups(indices: TensorLike, shape: np.ndarray, kept: Sequence[int]) -> tuple[tf.Tensor, int]:
    """The number of each value's group, int64 [count], by the dimensions `kept`; and the number of groups."""
    indices = tf.cast(indices, tf.int64)
    numbers = tf.zeros_like(indices[:, 0])
    for dimension in kept:
        numbers = numbers * int(shape[dimension]) + indices[:, dimension]
    return numbers, int(np.prod([shape[k] for k in kept], dtype=np.int64))


def _softmax(
    original: Callable[..., Any],
    sp_indices: TensorLike,
    sp_values: TensorLike,
    sp_shape: TensorLike,
    name: str | None = None,
) -> Any:
    """SparseSoftmax, over the values of each row."""
    shape = known(sp_shape)
    if shape is None:
        return original(sp_indices, sp_values, sp_shape, name)
    with tf.name_scope(name or "SparseSoftmax"):
        values = tf.convert_to_tensor(sp_values)
        rows, count = _groups(sp_indices, shape, range(len(shape) - 1))
        greatest = tf.stop_gradient(tf.math.unsorted_segment_max(values, rows, count))
        powers = tf.exp(values - tf.gather(greatest, rows))
        return powers / tf.gather(tf.math.unsorted_segment_sum(powers, rows, count), rows)


def _with_dense(
    by: Callable[..., tf.Tensor],
    original: Callable[..., Any],
    sp_indices: TensorLike,
    sp_values: TensorLike,
    sp_shape: TensorLike,
    dense: TensorLike,
    name: str | None = None,
) -> Any:
    """SparseDenseCwiseAdd and its like: the values, and the dense tensor's elements at their indices."""
    shape = known(sp_shape)
    if shape is None:
        return original(sp_indices, sp_values, sp_shape, dense, name)
    with tf.name_scope(name or "SparseDenseCwise"):
        return by(tf.convert_to_tensor(sp_values), tf.gather_nd(tf.broadcast_to(dense, shape), sp_indices))


def times_dense(original: Callable[..., Any], sparse: tf.SparseTensor, dense: Any) -> Any:
    """The operator *, which holds TensorFlow's function."""
    if isinstance(dense, tf.SparseTensor) or known(sparse.dense_shape) is None:
        return original(sparse, dense)
    dense = tf.convert_to_tensor(dense, sparse.dtype)
    values = _with_dense(tf.multiply, original, sparse.indices, sparse.values, sparse.dense_shape, dense)
    return tf.SparseTensor(sparse.indices, values, sparse.dense_shape)


def _added_to_dense(
    _: Any,
    a_indices: TensorLike,
    a_values: TensorLike,
    a_shape: TensorLike,
    b: TensorLike,
    name: str | None = None,
) -> tf.Tensor:
    """Add a sparse tensor to a dense one, as SparseTensorDenseAdd."""
    return tf.tensor_scatter_nd_add(b, a_indices, a_values, name=name)


def _reordered(
    original: Callable[..., Any],
    input_indices: TensorLike,
    input_values: TensorLike,
    input_shape: TensorLike,
    name: str | None = None,
) -> Any:
    """SparseReorder: indices and values by rows."""
    shape, indices = known(input_shape), known(input_indices)
    if shape is None:
        return original(input_indices, input_values, input_shape, name)
    with tf.name_scope(name or "SparseReorder"):
        if indices is not None:  # they remain constants
            order = np.lexsort(indices.T[::-1])
            return tf.constant(indices[order]), tf.gather(input_values, order)
        order = tf.argsort(_groups(input_indices, shape, range(len(shape)))[0], stable=True)
        return tf.gather(input_indices, order), tf.gather(input_values, order)


SPARSE_OPERATIONS: dict[str, Callable[..., Any]] = {
    "sparse_dense_cwise_add": partial(_with_dense, tf.add),
    "sparse_dense_cwise_div": partial(_with_dense, tf.divide),
    "sparse_dense_cwise_mul": partial(_with_dense, tf.multiply),
    "sparse_reduce_max": partial(_reduce, tf.math.unsorted_segment_max),
    "sparse_reduce_sum": partial(_reduce, tf.math.unsorted_segment_sum),
    "sparse_reorder": _reordered,
    "sparse_softmax": _softmax,
    "sparse_tensor_dense_add": _added_to_dense,
}
"""Replacements of TensorFlow's functions, by name."""


def sparse_lookup(
    original: Callable[..., Any],
    params: Any,
    sp_ids: tf.SparseTensor,
    sp_weights: tf.SparseTensor | None,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
    allow_fast_lookup: bool = False,
) -> Any:
    """embedding_lookup_sparse, whose rows end with the last index or, where indices are computed, the dense shape."""
    combiner = combiner or "mean"
    is_usual = isinstance(sp_ids, tf.SparseTensor) and combiner in ("mean", "sqrtn", "sum")
    indices = known(sp_ids.indices) if is_usual else None
    ends = indices[-1:, 0] + 1 if indices is not None else known(sp_ids.dense_shape) if is_usual else None
    if ends is None:
        return original(params, sp_ids, sp_weights, partition_strategy, name, combiner, max_norm, allow_fast_lookup)
    with tf.name_scope(name or "embedding_lookup_sparse"):
        rows = tf.compat.v1.nn.embedding_lookup(params, sp_ids.values, partition_strategy, max_norm=max_norm)
        dtype = tf.float32 if rows.dtype in WIDENED else rows.dtype
        weights = tf.ones_like(sp_ids.values, dtype) if sp_weights is None else tf.cast(sp_weights.values, dtype)
        count = int(ends[0]) if len(ends) else 0
        segments = sp_ids.indices[:, 0]
        each = tf.reshape(weights, [-1, *[1] * (rows.shape.rank - 1)])
        found = tf.math.unsorted_segment_sum(tf.cast(rows, dtype) * each, segments, count)
        if combiner != "sum":
            total = tf.math.unsorted_segment_sum(each if combiner == "mean" else each * each, segments, count)
            found = tf.math.divide_no_nan(found, total if combiner == "mean" else tf.sqrt(total))
        return tf.cast(found, rows.dtype)
