"""Segments whose number XLA must know while TensorFlow traces, of rows and of gathered rows, and counts of bins.

Each function has the arguments of TensorFlow's operation after the `original`, which is called where the number of
segments depends on values at run time; refusals.py then says what to use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.compiler.constant_values import known
from ipu._internal.types import TensorLike

_UNSORTED = {
    "max": tf.math.unsorted_segment_max,
    "mean": tf.math.unsorted_segment_mean,
    "min": tf.math.unsorted_segment_min,
    "prod": tf.math.unsorted_segment_prod,
    "sqrt_n": tf.math.unsorted_segment_sqrt_n,
    "sum": tf.math.unsorted_segment_sum,
}
WIDENED = frozenset({tf.float16, tf.bfloat16})
"""Types whose sums are in float32."""


def _segments(
    kind: str, original: Callable[..., Any], data: TensorLike, segment_ids: TensorLike, name: str | None = None
) -> Any:
    """tf.math.segment_sum and its like: zeros, or ones of a product, for numbers without rows."""
    ids = known(segment_ids)
    if ids is None:
        return original(data, segment_ids, name=name)
    count = _count(ids)
    data = tf.convert_to_tensor(data)
    with tf.name_scope(name or f"segment_{kind}"):
        found = _UNSORTED[kind](data, tf.constant(ids), count)
        if kind not in ("max", "min"):
            return found
        is_present = np.isin(np.arange(count), ids).reshape(-1, *[1] * (data.shape.rank - 1))
        return tf.where(tf.constant(is_present), found, tf.zeros([], data.dtype))


def _gathered_segments(
    kind: str,
    original: Callable[..., Any],
    data: TensorLike,
    indices: TensorLike,
    segment_ids: TensorLike,
    num_segments: TensorLike | None = None,
    sparse_gradient: bool = False,
    name: str | None = None,
) -> Any:
    """tf.sparse.segment_sum and its like, which reduce rows of `data`, sums of 16-bit floats in float32."""
    ids = known(segment_ids)
    given = () if num_segments is None else (num_segments,)
    count = known(num_segments) if given else None if ids is None else _count(ids)
    if count is None:
        return original(data, indices, segment_ids, *given, sparse_gradient=sparse_gradient, name=name)
    if ids is not None and _count(ids) > count:
        raise ValueError(f"Expected segment_ids below num_segments={int(count)}. Received: {int(ids[-1])}.")
    data = tf.convert_to_tensor(data)
    with tf.name_scope(name or f"sparse_segment_{kind}"):
        rows = tf.gather(data, indices)
        rows = tf.cast(rows, tf.float32) if data.dtype in WIDENED else rows
        return tf.cast(_UNSORTED[kind](rows, tf.convert_to_tensor(segment_ids), int(count)), data.dtype)


def _count(ids: np.ndarray) -> int:
    """The number of segments. Raises ValueError for ids that are negative or not sorted, as TensorFlow's kernels."""
    if (np.diff(ids) < 0).any() or (ids < 0).any():
        raise ValueError(
            f"Expected segment_ids from 0 in ascending order. Received: {ids.tolist()}. Sort the rows by segment, or "
            f"use tf.math.unsorted_segment_sum."
        )
    return int(ids[-1]) + 1 if ids.size else 0


SEGMENTS = {f"segment_{kind}": partial(_segments, kind) for kind in ("max", "mean", "min", "prod", "sum")}
"""Replacements of operations that are public names themselves, by name."""
GATHERED_SEGMENTS = {
    f"sparse_segment_{kind}{suffix}": partial(_gathered_segments, kind)
    for kind in ("mean", "sqrt_n", "sum")
    for suffix in ("", "_with_num_segments")
}


def histogram(
    _: Callable[..., Any],
    values: TensorLike,
    value_range: TensorLike,
    nbins: TensorLike,
    dtype: tf.DType = tf.int32,
    name: str | None = None,
) -> tf.Tensor:
    """tf.histogram_fixed_width: XLA lacks the operation. As TensorFlow's kernel, bins are found in float64.

    Raises ValueError for a known `value_range` that is empty.
    """
    limits, count = known(value_range), known(nbins)
    if limits is not None and not limits[0] < limits[1]:
        raise ValueError(f"Expected value_range[0] < value_range[1]. Received: {limits.tolist()}.")
    if count is None:
        raise ValueError("Expected nbins as a constant. Received: a tensor that is computed at run time.")
    with tf.name_scope(name or "histogram_fixed_width"):
        values = tf.reshape(values, [-1])
        limits = tf.convert_to_tensor(value_range)
        step = tf.cast(limits[1] - limits[0], tf.float64) / float(count)
        above = tf.cast(tf.maximum(values, limits[0]) - limits[0], tf.float64) / step
        bins = tf.cast(tf.minimum(above, float(count) - 1), tf.int32)
        return tf.math.unsorted_segment_sum(tf.ones_like(bins, dtype), bins, int(count))


def bin_counts(
    original: Callable[..., Any], input: TensorLike, size: Any, weights: TensorLike, **options: Any
) -> tf.Tensor:
    """DenseBincount with a constant size where the least and the greatest number of bins are the same.

    TensorFlow takes the size from the values: minimum(maxlength, maximum(minlength, 1 + max(values))).
    """
    if tf.is_tensor(size) and size.op.type == "Minimum" and size.op.inputs[1].op.type == "Maximum":
        most, least = (tf.get_static_value(each) for each in (size.op.inputs[0], size.op.inputs[1].op.inputs[0]))
        if most is not None and least is not None and most <= least:
            size = tf.constant(most, size.dtype)
    return original(input=input, size=size, weights=weights, **options)
