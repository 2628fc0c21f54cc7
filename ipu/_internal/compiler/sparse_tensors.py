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

from ipu._internal.compiler.constant_values import known
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
        groups, count = groups_of(input_indices, shape, kept)
        values = tf.convert_to_tensor(input_values)
        found = by(values, groups, count)
        if by is tf.math.unsorted_segment_max:
            is_present = tf.math.unsorted_segment_sum(tf.ones_like(groups), groups, count) > 0
            found = tf.where(is_present, found, tf.zeros([], values.dtype))
        sizes = [int(size) if k in kept else 1 for k, size in enumerate(shape)]
        return tf.reshape(found, sizes if keep_dims else [sizes[k] for k in kept])


def groups_of(indices: TensorLike, shape: np.ndarray, kept: Sequence[int]) -> tuple[tf.Tensor, int]:
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
        rows, count = groups_of(sp_indices, shape, range(len(shape) - 1))
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
        order = tf.argsort(groups_of(input_indices, shape, range(len(shape)))[0], stable=True)
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


def _reshaped(
    original: Callable[..., Any],
    input_indices: TensorLike,
    input_shape: TensorLike,
    new_shape: TensorLike,
    name: str | None = None,
) -> Any:
    """SparseReshape: indices, which remain constants, and dense shape."""
    shape, sizes = known(input_shape), known(new_shape)
    if shape is None or sizes is None or np.sum(sizes == -1) > 1:
        return original(input_indices, input_shape, new_shape, name)
    count, rest = int(np.prod(shape)), int(np.prod(sizes[sizes != -1]))
    sizes = np.where(sizes == -1, count // max(rest, 1), sizes)
    if int(np.prod(sizes)) != count:
        raise ValueError(
            f"Expected a shape of {count} elements, as of {shape.tolist()}. Received: {known(new_shape).tolist()}."
        )
    with tf.name_scope(name or "SparseReshape"):
        if (indices := known(input_indices)) is not None:
            numbers = np.ravel_multi_index(tuple(indices.T), shape) if len(indices) else indices[:, 0]
            places = np.stack(np.unravel_index(numbers, sizes), 1) if len(sizes) else numbers[:, None][:, :0]
            return tf.constant(places, tf.int64), tf.constant(sizes)
        numbers, places = groups_of(input_indices, shape, range(len(shape)))[0], []
        for size in sizes[::-1]:
            places.insert(0, numbers % max(int(size), 1))
            numbers = numbers // max(int(size), 1)
        return tf.stack(places, axis=1), tf.constant(sizes)


def _split(
    original: Callable[..., Any],
    split_dim: TensorLike,
    indices: TensorLike,
    values: TensorLike,
    shape: TensorLike,
    num_split: int,
    name: str | None = None,
) -> Any:
    """SparseSplit of constant indices: the parts' indices, values and dense shapes; the first parts are the larger."""
    dimension, sizes = known(split_dim), known(shape)
    if dimension is None or sizes is None or known(indices) is None:
        return original(split_dim, indices, values, shape, num_split, name)
    least, larger = divmod(int(sizes[dimension]), num_split)
    unit, start, parts = np.eye(len(sizes), dtype=np.int64)[dimension], 0, []
    with tf.name_scope(name or "SparseSplit"):
        for part in range(num_split):
            size = least + (part < larger)
            kept = np.where(unit, size, sizes)
            parts.append(_sliced(tf.raw_ops.SparseSlice, indices, values, sizes, start * unit, kept))
            start += size
    return tuple(list(each) for each in zip(*parts, strict=True))


SPARSE_OPERATIONS: dict[str, Callable[..., Any]] = {
    "sparse_add": partial(_merged, tf.add),
    "sparse_concat": _concatenated,
    "sparse_dense_cwise_add": partial(_with_dense, tf.add),
    "sparse_dense_cwise_div": partial(_with_dense, tf.divide),
    "sparse_dense_cwise_mul": partial(_with_dense, tf.multiply),
    "sparse_reduce_max": partial(_reduce, tf.math.unsorted_segment_max),
    "sparse_reduce_sum": partial(_reduce, tf.math.unsorted_segment_sum),
    "sparse_reorder": _reordered,
    "sparse_reshape": _reshaped,
    "sparse_slice": _sliced,
    "sparse_softmax": _softmax,
    "sparse_split": _split,
    "sparse_sparse_maximum": partial(_merged, tf.maximum),
    "sparse_sparse_minimum": partial(_merged, tf.minimum),
    "sparse_tensor_dense_add": _added_to_dense,
}
"""Replacements of TensorFlow's functions, by name."""
