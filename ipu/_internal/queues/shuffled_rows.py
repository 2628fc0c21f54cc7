"""Data sets that shuffle rows of tensors: tf.data shuffles and batches their numbers instead of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops.dataset_ops import DatasetV1Adapter
from tensorflow.python.ops import gen_dataset_ops

from ipu._internal.queues.row_sequences import RowSequence, row_sequence


def numbered(dataset: tf.data.Dataset) -> tuple[RowSequence, tf.data.Dataset] | None:
    """Rebuilds the steps of a data set over numbers of elements of a sequence, int64; None for steps that are not
    known.

    A data set that has begun its passes draws other orders than a new one with its seeds would. So outside of a graph,
    whose sessions create a new one each time, only shuffles without seeds are known.
    """
    if isinstance(dataset, DatasetV1Adapter):
        dataset = dataset._dataset
    sequence = row_sequence(dataset)
    if sequence is not None:
        return sequence, tf.data.Dataset.range(sequence.length)
    step = STEPS.get(type(dataset).__name__)
    below = None if step is None else numbered(dataset._input_dataset)
    above = None if step is None or below is None else step(dataset, below[1])
    return None if below is None or above is None else (below[0], above)


def _shuffled(dataset: Any, numbers: tf.data.Dataset) -> tf.data.Dataset | None:
    seeds = {"buffer_size": dataset._buffer_size, "seed": dataset._seed, "seed2": dataset._seed2}
    again = dataset._reshuffle_each_iteration
    attributes = {"reshuffle_each_iteration": again, "output_types": [tf.int64]}
    attributes["output_shapes"] = [numbers.element_spec.shape]
    if not tf.executing_eagerly():
        made = gen_dataset_ops.shuffle_dataset(numbers._variant_tensor, **seeds, **attributes)
    elif again and not int(dataset._seed) and not int(dataset._seed2):
        generator = gen_dataset_ops.dummy_seed_generator()
        made = gen_dataset_ops.shuffle_dataset_v3(
            numbers._variant_tensor, **seeds, seed_generator=generator, **attributes
        )
    else:
        return None
    return tf.data.experimental.from_variant(made, numbers.element_spec)


def _batched(dataset: Any, numbers: tf.data.Dataset) -> tf.data.Dataset | None:
    drop_remainder = tf.get_static_value(dataset._drop_remainder)
    return numbers.batch(dataset._batch_size, drop_remainder=True) if drop_remainder else None


STEPS: dict[str, Callable[[Any, tf.data.Dataset], tf.data.Dataset | None]] = {
    "_BatchDataset": _batched,
    "_ParallelBatchDataset": _batched,
    "_OptionsDataset": lambda dataset, numbers: numbers.with_options(dataset._options_attr),
    "_PrefetchDataset": lambda dataset, numbers: numbers,
    "_RepeatDataset": lambda dataset, numbers: numbers.repeat(dataset._count),
    "_ShardDataset": lambda dataset, numbers: numbers.shard(dataset._num_shards, dataset._index),
    "_ShuffleDataset": _shuffled,
    "_SkipDataset": lambda dataset, numbers: numbers.skip(dataset._count),
    "_TakeDataset": lambda dataset, numbers: numbers.take(dataset._count),
}
