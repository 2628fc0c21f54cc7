"""The orders in which Keras' data sets of arrays give the rows of a program that set TensorFlow's seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context


@dataclass(frozen=True)
class SeededOrders:
    """Iterating gives an int64 array of row numbers for each pass; each iterator begins with the first order again."""

    dataset: tf.data.Dataset
    batches: int = 1
    """The elements of the data set that make up a pass."""

    def __iter__(self) -> Iterator[np.ndarray]:
        parts = self.dataset.as_numpy_iterator()
        while True:
            yield np.concatenate([next(parts) for _ in range(self.batches)])


def seeded_orders(rows: int, shuffle: bool | str, batch_size: int, passes: int = 1) -> SeededOrders | None:
    """The orders of `passes` passes, as Keras draws them; None without a seed or without shuffling.

    The seeds of an operation depend on its number in the function: these functions are Keras'.
    """
    if not shuffle or context.global_seed() is None:
        return None

    def permutation(_: tf.Tensor) -> tf.Tensor:
        indices = tf.range(rows, dtype=tf.int64)
        if shuffle != "batch":
            indices = tf.random.shuffle(indices)
        return indices

    whole = tf.data.Dataset.range(1).repeat(passes).map(permutation).prefetch(1)
    if shuffle != "batch":
        return SeededOrders(whole)
    batched = whole.flat_map(lambda order: tf.data.Dataset.from_tensor_slices(order).batch(batch_size))
    return SeededOrders(batched.map(tf.random.shuffle), -(-rows // batch_size))
