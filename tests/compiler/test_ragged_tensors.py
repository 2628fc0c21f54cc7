"""RaggedTensor.to_tensor beside TensorFlow's kernel, which XLA lacks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu.ipu_strategy import IPUStrategy
from tests.compiler.test_segments import check

VALUES = np.arange(1, 7, dtype=np.float32)


def test_rows_of_constant_lengths() -> None:
    def function(x: tf.Tensor) -> list[tf.Tensor]:
        rows = tf.RaggedTensor.from_row_lengths(x, [2, 0, 4])
        numbered = tf.RaggedTensor.from_value_rowids(x, [0, 0, 1, 3, 3, 3], 5)
        nested = tf.RaggedTensor.from_nested_row_splits(tf.stack([x, -x], 1), [[0, 0, 3, 4], [0, 1, 1, 4, 6]])
        return [
            rows.to_tensor(),
            rows.to_tensor(-1.0, shape=[4, 3]),
            rows.to_tensor(shape=[2, None]),
            numbered.to_tensor(7.0),
            nested.to_tensor(),
            nested.to_tensor([3.0, 4.0], shape=[2, 2, 5, 2]),
            tf.RaggedTensor.from_row_lengths(x[:0], [0, 0]).to_tensor(2.0, shape=[3, 2]),
            tf.ragged.constant([[1.0], [], [2.0, 3.0]]).to_tensor() * x[0],
        ]

    check(function, VALUES)


def test_rows_of_computed_lengths() -> None:
    def function(x: tf.Tensor, lengths: tf.Tensor) -> list[tf.Tensor]:
        rows = tf.RaggedTensor.from_row_lengths(x, lengths, validate=False)
        matrix = tf.reshape(x, [2, 3])
        padded = tf.RaggedTensor.from_tensor(tf.where(matrix == 3.0, 0.0, matrix), padding=0.0)
        return [rows.to_tensor(shape=[3, 4]), rows.to_tensor(9.0, shape=[5, 2]), padded.to_tensor(shape=[2, 4])]

    check(function, VALUES, np.array([1, 5, 0]))
    check(function, VALUES, np.array([0, 0, 6]))


def test_columns_that_depend_on_values_are_refused() -> None:
    def function(x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.RaggedTensor.from_row_lengths(x, lengths, validate=False).to_tensor())

    with IPUStrategy().scope() as strategy, pytest.raises(UnsupportedOperation, match=r"to_tensor.*shape"):
        strategy.run(tf.function(function, jit_compile=True), [tf.constant(VALUES), tf.constant([1, 5, 0])])
