"""Data sets without tf.data's tuner where it has nothing to tune."""

from __future__ import annotations

import tensorflow as tf

TUNED = frozenset(
    {"_MapDataset", "_MapAndBatchDataset", "_ParallelBatchDataset", "_ParallelInterleaveDataset", "_ParallelMapDataset"}
)
"""Steps whose parallelism the tuner chooses."""


def without_idle_tuner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The data set, without a tuner if none of its steps is tuned and its options leave that open.

    Each iterator has a thread of the tuner. Of dropped iterators, one in some thirty waits for this thread and holds
    Python's global lock, as long as the iterator has lived, up to a minute: TensorFlow's tuner misses its cancellation
    if it wakes up before the cancellation is recorded, and sleeps again.
    """
    if dataset.options().autotune.enabled is not None or _is_tuned(dataset):
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _is_tuned(dataset: tf.data.Dataset) -> bool:
    return type(dataset).__name__ in TUNED or any(_is_tuned(source) for source in dataset._inputs())
