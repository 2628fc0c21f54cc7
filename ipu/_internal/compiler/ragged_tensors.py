"""RaggedTensor.to_tensor where the result's shape is known while TensorFlow traces: XLA lacks RaggedTensorToTensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu._internal.compiler.constant_values import known
from ipu._internal.types import TensorLike


def to_dense(
    original: Callable[..., Any],
    shape: TensorLike,
    values: TensorLike,
    default_value: TensorLike,
    row_partition_tensors: Sequence[TensorLike],
    row_partition_types: Sequence[str],
    name: str | None = None,
) -> Any:
    """RaggedTensorToTensor: the rows, cut off or filled with the default value.

    Each number of columns is the size in `shape`, or that of the longest row where lengths of rows are constants.
    """
    values, given = tf.convert_to_tensor(values), known(shape)
    ends = _ends_of_rows(list(map(tf.convert_to_tensor, row_partition_tensors)), list(map(str, row_partition_types)))
    sizes = None if ends is None or given is None else _sizes(ends, np.reshape(given, [-1]), values)
    if ends is None or sizes is None:
        return original(shape, values, default_value, row_partition_tensors, row_partition_types, name)
    with tf.name_scope(name or "RaggedTensorToTensor"):
        filled, rank = tf.cast(default_value, values.dtype), len(ends) + 1
        if 0 in (values.shape[0], *(each.shape[0] - 1 for each in ends)):
            return tf.broadcast_to(filled, sizes)
        places, is_there = tf.range(sizes[0]), tf.ones([sizes[0]], tf.bool)
        for each, size in zip(ends, sizes[1:rank], strict=True):
            count = each.shape[0] - 1
            is_there = (is_there & (places < count))[..., None]
            places = tf.where(is_there[..., 0], places, 0)
            first, end = (tf.gather(each, places + k)[..., None] for k in (0, 1))
            places = first + tf.range(size)
            is_there &= places < end
        is_there = tf.reshape(is_there, [*sizes[:rank], *[1] * (len(sizes) - rank)])
        return tf.where(is_there, tf.gather(values, tf.where(tf.reshape(is_there, places.shape), places, 0)), filled)


def _ends_of_rows(partitions: list[tf.Tensor], kinds: list[str]) -> list[tf.Tensor] | None:
    """The first index of each row and the end of the last, for each ragged dimension, int32; None if not known."""
    found: list[tf.Tensor] = []
    count = None
    if kinds[0] == "FIRST_DIM_SIZE":
        count, partitions, kinds = known(partitions[0]), partitions[1:], kinds[1:]
    for each, kind in zip(partitions, kinds, strict=True):
        constant = known(each)
        if kind == "ROW_SPLITS":
            ends = tf.cast(each, tf.int32) if constant is None else tf.constant(constant, tf.int32)
        elif count is None:
            return None
        elif constant is not None:
            ends = tf.constant(np.searchsorted(constant, np.arange(int(count) + 1)), tf.int32)
        else:
            lengths = tf.math.unsorted_segment_sum(tf.ones_like(each, tf.int32), each, int(count))
            ends = tf.pad(tf.cumsum(lengths), [[1, 0]])
        if ends.shape[0] is None:
            return None
        found.append(ends)
        count = each.shape[0]
    return found


def _sizes(ends: list[tf.Tensor], given: np.ndarray, values: tf.Tensor) -> list[int] | None:
    """The sizes of the result; None if one depends on values at run time, or differs from a dense dimension's."""
    longest = [_longest(each) for each in ends]
    natural = [ends[0].shape[0] - 1, *longest, *values.shape[1:]]
    if len(given) != len(natural):
        given = np.full(len(natural), -1)
    sizes = [size if chosen == -1 else int(chosen) for size, chosen in zip(natural, given, strict=True)]
    return None if None in sizes or sizes[len(ends) + 1 :] != natural[len(ends) + 1 :] else sizes


def _longest(ends: tf.Tensor) -> int | None:
    constant = known(ends)
    return None if constant is None else int(np.diff(constant).max(initial=0))
