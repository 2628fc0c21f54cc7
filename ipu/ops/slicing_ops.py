"""Slicing operators: the public names of `tensorflow.python.ipu.slicing_ops` (Python API, 18.14.16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.compiler.device_calls import in_graph
from ipu._internal.names.namespace import public_names
from ipu._internal.types import TensorLike

__all__ = ["sequence_slice", "sequence_slice_pack", "sequence_slice_unpack"]
__getattr__, __dir__ = public_names(__name__, __all__)


def sequence_slice(
    dst: TensorLike,
    src: TensorLike,
    num_elems: TensorLike,
    src_offsets: TensorLike,
    dst_offsets: TensorLike,
    zero_unused: bool,
) -> tf.Tensor:
    """Copies rows of `src` over rows of `dst`: slice i has num_elems[i] of them. Where slices overlap, the last counts.

    Gradients with respect to `dst` and `src` exist.

    Args:
        dst: [M, ...], of any dtype.
        src: [N, ...], of the same other dimensions and dtype; at least one dimension follows the first.
        num_elems: number of rows of each slice, int32[n], n > 0.
        src_offsets: the first row in `src` of each slice, int32[n].
        dst_offsets: the first row in `dst` of each slice, int32[n].
        zero_unused: whether rows that no slice covers become zeros; they keep their values otherwise.

    Returns:
        [M, ...] of the dtype of `dst`. Rows that lie outside of `src` or `dst` are not copied.

    Raises:
        ValueError: ranks, dimensions or numbers of slices do not agree, or a slice whose offset and size are known
            when the program is traced lies outside of `src` or `dst`.
    """
    dst = tf.convert_to_tensor(dst)
    src = tf.convert_to_tensor(src, dst.dtype)
    if src.shape.rank is None or src.shape.rank < 2 or src.shape[1:] != dst.shape[1:]:
        raise ConfigurationError(
            f"Expected dst and src of at least two dimensions, and the same ones after the first. Received: shapes "
            f"{dst.shape} and {src.shape}."
        )
    counts, sources, positions = (tf.convert_to_tensor(v, tf.int32) for v in (num_elems, src_offsets, dst_offsets))
    if not counts.shape.rank == 1 or counts.shape[0] == 0 or not counts.shape == sources.shape == positions.shape:
        raise ConfigurationError(
            f"Expected a count and an offset for each of one or more slices. Received: shapes {counts.shape}, "
            f"{sources.shape} and {positions.shape}."
        )
    for tensor, offsets, name in ((src, sources, "src"), (dst, positions, "dst")):
        _check_inside(tensor, counts, offsets, name)
    within = tf.range(tf.shape(dst)[0])[:, None] - positions
    rows = sources + within
    covered = (within >= 0) & (within < counts) & (rows >= 0) & (rows < tf.shape(src)[0])
    slices = tf.range(tf.shape(counts)[0])
    # In a tf.Graph of TensorFlow 1, == is identity: tf.equal compares.
    last = tf.reduce_max(tf.where(covered, slices, -1), axis=1)
    row = tf.reduce_sum(tf.where(tf.equal(slices, last[:, None]), rows, 0), axis=1)
    is_copied = tf.reshape(last >= 0, [-1] + [1] * (dst.shape.rank - 1))

    @tf.custom_gradient
    def sliced(dst: tf.Tensor, src: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # Rows that were not copied get the number -1, which segment sums leave out.
            of_src = tf.math.unsorted_segment_sum(upstream, tf.where(last >= 0, row, -1), tf.shape(src)[0])
            zeros = tf.zeros_like(upstream)
            return zeros if zero_unused else tf.where(is_copied, zeros, upstream), of_src

        return tf.where(is_copied, tf.gather(src, row), tf.zeros_like(dst) if zero_unused else dst), gradient

    return sliced(*in_graph([dst, src]))


def sequence_slice_pack(
    dst: TensorLike, src: TensorLike, num_elems: TensorLike, dst_offsets: TensorLike, zero_unused: bool
) -> tf.Tensor:
    """`sequence_slice` of slices that follow each other in `src`, as from `sequence_slice_unpack`.

    Args:
        dst: [M, ...], of any dtype.
        src: [N, ...], of the same other dimensions and dtype; at least one dimension follows the first.
        num_elems: number of rows of each slice, int32[n], n > 0.
        dst_offsets: the first row in `dst` of each slice, int32[n].
        zero_unused: whether rows that no slice covers become zeros; they keep their values otherwise.

    Returns:
        [M, ...] of the dtype of `dst`.

    Raises:
        ValueError: as `sequence_slice`; also for slices of more rows in all than `src` has.
    """
    return sequence_slice(dst, src, num_elems, _one_after_the_other(num_elems), dst_offsets, zero_unused)


def sequence_slice_unpack(
    src: TensorLike, num_elems: TensorLike, src_offsets: TensorLike, total_elements: int
) -> tf.Tensor:
    """`sequence_slice` of slices that follow each other in the result, [total_elements, ...]; its other rows are zeros.

    Args:
        src: [N, ...], of any dtype; at least one dimension follows the first.
        num_elems: number of rows of each slice, int32[n], n > 0.
        src_offsets: the first row in `src` of each slice, int32[n].
        total_elements: number of rows of the result.

    Returns:
        [total_elements, ...] of the dtype of `src`.

    Raises:
        ValueError: as `sequence_slice`; also for slices of more than `total_elements` rows in all.
    """
    src = tf.convert_to_tensor(src)
    dst = tf.zeros([total_elements, *src.shape.as_list()[1:]], src.dtype)
    return sequence_slice(dst, src, num_elems, src_offsets, _one_after_the_other(num_elems), True)


def _one_after_the_other(num_elems: TensorLike) -> tf.Tensor:
    """The offsets of slices that follow each other; constant if `num_elems` is known when the program is traced."""
    counts = tf.convert_to_tensor(num_elems, tf.int32)
    known = tf.get_static_value(counts)
    return tf.cumsum(counts, exclusive=True) if known is None else tf.constant(np.cumsum(known) - known, tf.int32)


def _check_inside(tensor: tf.Tensor, counts: tf.Tensor, offsets: tf.Tensor, name: str) -> None:
    """Raises ConfigurationError for a slice outside of a tensor, if offsets and sizes are known at tracing."""
    count, first, rows = tf.get_static_value(counts), tf.get_static_value(offsets), tensor.shape.as_list()[0]
    if count is None or first is None or rows is None:
        return
    outside = np.flatnonzero((count < 0) | (first < 0) | (first + count > rows))
    if outside.size:
        number = outside[0]
        raise ConfigurationError(
            f"Expected slices within the {rows} rows of {name}. Received: {count[number]} rows from row "
            f"{first[number]} in slice {number}."
        )
