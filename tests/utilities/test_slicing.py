"""Slices of sequences, by their definition, with gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.collectives.running import on_replicas

SLICES = ([3, 0, 2, 1], [4, 1, 0, 4], [1, 2, 3, 8])
"""Numbers of rows, first rows of the source and first rows of the destination; two slices overlap."""


def copied(dst: np.ndarray, src: np.ndarray, zero_unused: bool) -> np.ndarray:
    result = np.zeros_like(dst) if zero_unused else dst.copy()
    for count, start, place in zip(*SLICES, strict=True):
        result[place : place + count] = src[start : start + count]
    return result


@pytest.mark.parametrize("zero_unused", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_slices_and_gradients(zero_unused: bool, is_known: bool) -> None:
    random = np.random.default_rng(2)
    dst, src, factors = (random.normal(size=(n, 2, 3)).astype(np.float32) for n in (9, 7, 9))

    def function(dst: tf.Tensor, src: tf.Tensor, *slices: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            tape.watch([dst, src])
            result = ipu.slicing_ops.sequence_slice(dst, src, *(SLICES if is_known else slices), zero_unused)
            total = tf.reduce_sum(result * factors)
        gradients = tape.gradient(total, [dst, src], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return result, *map(tf.convert_to_tensor, gradients)

    given = on_replicas(function, 1, dst, src, *map(np.int32, SLICES))
    np.testing.assert_array_equal(given[0], copied(dst, src, zero_unused))
    origin = copied(np.full((9, 1), -1), np.arange(7)[:, None], False)[:, 0]
    kept = factors * (origin < 0)[:, None, None] * (not zero_unused)
    np.testing.assert_array_equal(given[1], kept)
    expected = np.zeros_like(src)
    np.add.at(expected, origin[origin >= 0], factors[origin >= 0])
    np.testing.assert_allclose(given[2], expected, rtol=1e-6)


def test_slices_that_cannot_be() -> None:
    rows = np.ones((4, 2), np.float32)
    for arguments, message in (
        ((rows, rows[:, :1], [1], [0], [0], False), "same ones"),
        ((rows[:, 0], rows[:, 0], [1], [0], [0], False), "two dimensions"),
        ((rows, rows, [1, 1], [0], [0], False), "each of one or more"),
        ((rows, rows, [], [], [], False), "each of one or more"),
        ((rows, rows, [1, 2], [0, 3], [0, 0], False), "4 rows of src.*2 rows from row 3 in slice 1"),
        ((rows, rows, [1], [0], [-1], False), "rows of dst"),
    ):
        with pytest.raises(ValueError, match=message):
            ipu.slicing_ops.sequence_slice(*arguments)
    with pytest.raises(ValueError, match="3 rows of dst"):
        ipu.slicing_ops.sequence_slice_unpack(rows, [2, 2], [0, 0], 3)
