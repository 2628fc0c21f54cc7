"""Checks whether a tf.data set ends with a batch of fewer rows than the others, without reading it."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.data.ops import batch_op, cache_op, dataset_ops, map_op, prefetch_op, repeat_op, shuffle_op

ROWS_STAY = (
    *(map_op._MapDataset, map_op._ParallelMapDataset, prefetch_op._PrefetchDataset, dataset_ops._OptionsDataset),
    *(repeat_op._RepeatDataset, shuffle_op._ShuffleDataset, cache_op.CacheDataset),
)
"""Transformations after `batch` that keep the rows of batches: `map` too, unless it gives batches a static size."""
BATCHES = (batch_op._BatchDataset, batch_op._ParallelBatchDataset)


def partial_batch(dataset: tf.data.Dataset, batches: int | None = None) -> tuple[int, int] | None:
    """The rows of the partial batch among the first `batches`, and of the others; None if there is none, or none known.

    None for `batches` means one pass over the data.
    """
    if not isinstance(dataset, tf.data.Dataset) or not _has_dynamic_rows(dataset):
        return None
    while type(dataset) in ROWS_STAY:
        dataset = dataset._input_dataset
    if type(dataset) not in BATCHES:
        return None
    rows = int(dataset._input_dataset.cardinality())
    size, drops = tf.get_static_value(dataset._batch_size), tf.get_static_value(dataset._drop_remainder)
    if rows < 0 or drops or size is None or rows % size == 0:
        return None
    reached = batches is None or batches > rows // size
    return (rows % int(size), int(size)) if reached else None


def _has_dynamic_rows(dataset: tf.data.Dataset) -> bool:
    specs = [spec for spec in tf.nest.flatten(dataset.element_spec) if isinstance(spec, tf.TensorSpec)]
    return any(spec.shape.rank and spec.shape.as_list()[0] is None for spec in specs)
