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


def _concatenated(
    original: Callable[..., Any],
    indices: Sequence[TensorLike],
    values: Sequence[TensorLike],
    shapes: Sequence[TensorLike],
    concat_dim: int,
    name: str | None = None,
) -> Any:
    """SparseConcat: indices, values and dense shape."""
    sizes = [known(each) for each in shapes]
    if any(each is None or np.any(np.delete(each - sizes[0], concat_dim)) for each in sizes):
        return original(indices, values, shapes, concat_dim, name)
    with tf.name_scope(name or "SparseConcat"):
        starts = np.cumsum([0, *(each[concat_dim] for each in sizes)])
        unit = np.eye(len(sizes[0]), dtype=np.int64)[concat_dim]
        moved = [_moved(each, start * unit) for each, start in zip(indices, starts, strict=False)]
        shape, constants = np.where(unit, starts[-1], sizes[0]), [known(each) for each in moved]
        are_computed = any(each is None for each in constants)
        places = tf.concat(moved, 0) if are_computed else tf.constant(np.concatenate(constants))
        joined = tf.stop_gradient(tf.concat(list(values), 0))  # SparseConcat has no gradient
        return *_reordered(tf.raw_ops.SparseReorder, places, joined, shape), tf.constant(shape)


def _moved(indices: TensorLike, offset: np.ndarray) -> tf.Tensor:
    """The indices, which remain constants, moved by an offset."""
    constant = known(indices)
    return tf.cast(indices, tf.int64) + offset if constant is None else tf.constant(constant + offset)


def _merged(
    by: Callable[..., tf.Tensor],
    original: Callable[..., Any],
    a_indices: TensorLike,
    a_values: TensorLike,
    a_shape: TensorLike,
    b_indices: TensorLike,
    b_values: TensorLike,
    b_shape: TensorLike,
    *threshold: TensorLike,
    **named: Any,
) -> Any:
    """SparseAdd without a threshold, SparseSparseMaximum and its like, of constant indices that are in order."""
    places, shape = [known(a_indices), known(b_indices)], known(a_shape)
    is_usual = all(each is not None and _are_in_order(each) for each in places)
    is_usual = is_usual and shape is not None and np.array_equal(shape, known(b_shape))
    threshold = (*threshold, *(named.pop(each) for each in ("thresh",) if each in named))
    if not is_usual or any(known(each) is None or np.any(known(each)) for each in threshold):
        return original(a_indices, a_values, a_shape, b_indices, b_values, b_shape, *threshold, **named)
    with tf.name_scope(named.get("name") or "SparseMerge"):
        both, rows = np.unique(np.concatenate(places), axis=0, return_inverse=True)
        rows, counts = rows.reshape(-1), [len(each) for each in places]
        sides = zip((a_values, b_values), np.split(rows, counts[:1]), strict=True)
        found = by(*(tf.scatter_nd(at[:, None], values, [len(both)]) for values, at in sides))
        return (tf.constant(both), found, *([tf.constant(shape)] if threshold else []))


def _are_in_order(indices: np.ndarray) -> bool:
    """Whether each index comes after the one before."""
    changes = np.diff(indices, axis=0)
    first = (changes != 0).argmax(axis=1)
    return bool((np.take_along_axis(changes, first[:, None], 1) > 0).all())


def _sliced(
    original: Callable[..., Any],
    indices: TensorLike,
    values: TensorLike,
    shape: TensorLike,
    start: TensorLike,
    size: TensorLike,
    name: str | None = None,
) -> Any:
    """SparseSlice of constant indices: indices, values and dense shape."""
    places, sizes, first, count = (known(each) for each in (indices, shape, start, size))
    if any(each is None for each in (places, sizes, first, count)):
        return original(indices, values, shape, start, size, name)
    with tf.name_scope(name or "SparseSlice"):
        kept = np.maximum(np.minimum(first + count, sizes) - first, 0)
        is_kept = np.flatnonzero(((places >= first) & (places < first + kept)).all(axis=1))
        return tf.constant(places[is_kept] - first), tf.gather(values, is_kept), tf.constant(kept)


SPARSE_OPERATIONS: dict[str, Callable[..., Any]] = {
    "sparse_add": partial(_merged, tf.add),
    "sparse_concat": _concatenated,
    "sparse_dense_cwise_add": partial(_with_dense, tf.add),
    "sparse_dense_cwise_div": partial(_with_dense, tf.divide),
    "sparse_dense_cwise_mul": partial(_with_dense, tf.multiply),
    "sparse_reduce_max": partial(_reduce, tf.math.unsorted_segment_max),
    "sparse_reduce_sum": partial(_reduce, tf.math.unsorted_segment_sum),
    "sparse_reorder": _reordered,
    "sparse_slice": _sliced,
    "sparse_softmax": _softmax,
    "sparse_sparse_maximum": partial(_merged, tf.maximum),
    "sparse_sparse_minimum": partial(_merged, tf.minimum),
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
