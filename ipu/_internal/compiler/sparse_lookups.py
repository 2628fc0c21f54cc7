"""Look-ups of sparse ids in embedding tables: sums or means of rows for each row of ids.

Each function has the arguments of TensorFlow's own after the `original`, which is called where the number of rows is
not known while TensorFlow traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.constant_values import known
from ipu._internal.compiler.segments import WIDENED
from ipu._internal.compiler.sparse_tensors import groups_of

COMBINERS = ("mean", "sqrtn", "sum")


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
    is_usual = isinstance(sp_ids, tf.SparseTensor) and combiner in COMBINERS
    indices = known(sp_ids.indices) if is_usual else None
    ends = indices[-1:, 0] + 1 if indices is not None else known(sp_ids.dense_shape) if is_usual else None
    if ends is None:
        return original(params, sp_ids, sp_weights, partition_strategy, name, combiner, max_norm, allow_fast_lookup)
    with tf.name_scope(name or "embedding_lookup_sparse"):
        rows = tf.compat.v1.nn.embedding_lookup(params, sp_ids.values, partition_strategy, max_norm=max_norm)
        weights = tf.ones_like(sp_ids.values, tf.float32) if sp_weights is None else sp_weights.values
        return _combined(rows, weights, sp_ids.indices[:, 0], int(ends[0]) if len(ends) else 0, combiner)


def safe_sparse_lookup(
    original: Callable[..., Any],
    embedding_weights: Any,
    sparse_ids: tf.SparseTensor,
    sparse_weights: tf.SparseTensor | None = None,
    combiner: str = "mean",
    default_id: Any = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
    allow_fast_lookup: bool = False,
) -> Any:
    """safe_embedding_lookup_sparse, which feature columns call, with a mask in place of the ids that it leaves out.

    It reads the rows that TensorFlow reads and no others, so that optimizers of sparse gradients update the same.
    """
    shape = known(sparse_ids.dense_shape) if isinstance(sparse_ids, tf.SparseTensor) else None
    if shape is None or combiner not in COMBINERS:
        given = (embedding_weights, sparse_ids, sparse_weights, combiner, default_id, name)
        return original(*given, partition_strategy, max_norm, allow_fast_lookup)
    tables = list(embedding_weights) if isinstance(embedding_weights, (list, tuple)) else embedding_weights
    with tf.name_scope(name or "safe_embedding_lookup_sparse"):
        ids, groups, count = sparse_ids.values, *groups_of(sparse_ids.indices, shape, range(len(shape) - 1))
        weights = tf.ones_like(ids, tf.float32) if sparse_weights is None else sparse_weights.values
        is_valid = ids >= 0 if combiner == "sum" or sparse_weights is None else (ids >= 0) & (weights > 0)
        # An id that is left out is replaced by one of its row, and in an empty row by the id that TensorFlow fills in.
        of_rows = tf.math.unsorted_segment_max(tf.where(is_valid, ids, tf.constant(-1, ids.dtype)), groups, count)
        is_empty = of_rows < 0
        of_rows = tf.where(is_empty, tf.constant(default_id or 0, ids.dtype), of_rows)
        every = tf.concat([tf.where(is_valid, ids, tf.gather(of_rows, groups)), of_rows], 0)
        amounts = tf.concat([tf.where(is_valid, weights, tf.zeros_like(weights)), tf.cast(is_empty, weights.dtype)], 0)
        rows = tf.compat.v1.nn.embedding_lookup(tables, every, partition_strategy, max_norm=max_norm)
        numbers = tf.concat([groups, tf.range(count, dtype=groups.dtype)], 0)
        found = _combined(rows, amounts, numbers, count, combiner)
        if default_id is None:
            found = tf.where(is_empty[:, None], tf.zeros_like(found), found)
        return tf.reshape(found, [*shape[:-1], *found.shape[1:]])


def _combined(rows: tf.Tensor, weights: tf.Tensor, segments: tf.Tensor, count: int, combiner: str) -> tf.Tensor:
    """Weighted sums of the rows of `count` segments, of 16-bit ones in float32, divided as the combiner says."""
    dtype = tf.float32 if rows.dtype in WIDENED else rows.dtype
    each = tf.reshape(tf.cast(weights, dtype), [-1, *[1] * (rows.shape.rank - 1)])
    found = tf.math.unsorted_segment_sum(tf.cast(rows, dtype) * each, segments, count)
    if combiner != "sum":
        total = tf.math.unsorted_segment_sum(each if combiner == "mean" else each * each, segments, count)
        found = tf.math.divide_no_nan(found, total if combiner == "mean" else tf.sqrt(total))
    return tf.cast(found, rows.dtype)
