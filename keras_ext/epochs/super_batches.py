"""tf.data sets whose batches are joined inside tf.data: Python touches one tensor for each execution."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from engine.ir.shape import ELEMENT_TYPES
from engine.runtime.feeds import RowFeed
from ipu._internal.queues.autotuning import without_idle_tuner
from ipu._internal.queues.batching import never_fails
from keras_ext.epochs.batch_types import BatchType, type_of_specs
from keras_ext.epochs.feeds import BatchSignature, BatchSource, FeedIterator
from keras_ext.epochs.structure import BatchStructure, flatten
from keras_ext.types import Nest

MOST_BYTES = 2**26
"""Larger super-batches are split: two of them are in memory, besides the data set's own prefetching."""
MOST_ROWS_GUESSED = 256
"""The rows assumed for a batch whose size is unknown to tf.data."""


def super_batches(dataset: tf.data.Dataset, steps: int, executions_ahead: int | None = None) -> Iterable[Any]:
    """An iterable over the batches of `dataset` whose iterators `take` up to `steps` of them at the cost of one.

    The data of `executions_ahead` times `steps` are prepared ahead, or of one super-batch if it is None. The batches
    are not joined where a super-batch has no advantage (one step at a time), where an error in place of a batch would
    replace the batches before it, or where tf.data cannot build one: for anything but tensors of numbers with at most
    the first dimension unknown.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return dataset
    together, is_joined, dataset = _together(dataset, steps), never_fails(dataset), without_idle_tuner(dataset)
    ahead = 1 if executions_ahead is None else executions_ahead * (steps // together)
    if together > 1 and is_joined:
        return SuperBatches(dataset, together, ahead)
    return dataset.prefetch(ahead * together)


def _together(dataset: tf.data.Dataset, steps: int) -> int:
    """Number of batches to join: the largest divisor of `steps` with at most MOST_BYTES, at least 1."""
    specs = tf.nest.flatten(dataset.element_spec)
    if steps == 1 or not specs or not all(_is_regular(spec) for spec in specs):
        return 1
    each = sum(prod(size or MOST_ROWS_GUESSED for size in spec.shape.as_list()) * spec.dtype.size for spec in specs)
    return max(d for d in range(1, steps + 1) if steps % d == 0 and (d == 1 or d * each <= MOST_BYTES))


def _is_regular(spec: tf.TensorSpec) -> bool:
    if type(spec) is not tf.TensorSpec or spec.shape.rank is None:
        return False
    known = spec.shape[1:].is_fully_defined()
    return known and spec.dtype.is_numpy_compatible and np.dtype(spec.dtype.as_numpy_dtype) in ELEMENT_TYPES


def _ragged(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """`dataset` with ragged tensors in place of arrays whose number of rows is unknown: any batch may have fewer rows.

    `Dataset.ragged_batch` does the same, but traces a function for each call of `fit`, `evaluate` or `predict`.
    """
    specs = tuple(tf.TensorSpec(spec.shape, spec.dtype) for spec in tf.nest.flatten(dataset.element_spec))
    if all(spec.shape.is_fully_defined() for spec in specs):
        return dataset
    function = _ragged_variants(specs)
    outputs = function.structured_outputs
    variant = tf.raw_ops.MapDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        other_arguments=[],
        f=function,
        output_types=[output.dtype for output in outputs],
        output_shapes=[output.shape for output in outputs],
        preserve_cardinality=True,
    )
    ragged = tf.data.experimental.from_variant(variant, tf.nest.map_structure(_ragged_spec, dataset.element_spec))
    ragged._source = dataset  # a variant keeps no Python object of its data set alive
    return ragged


def _ragged_spec(spec: tf.TensorSpec) -> tf.TensorSpec | tf.RaggedTensorSpec:
    if spec.shape.is_fully_defined():
        return spec
    return tf.RaggedTensorSpec(spec.shape, spec.dtype, ragged_rank=0)


@lru_cache(maxsize=64)
def _ragged_variants(specs: tuple[tf.TensorSpec, ...]) -> Any:
    """A function of tensors that encodes those of an unknown number of rows as ragged tensors, as tf.data does."""

    def encode(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return [
            tensor
            if spec.shape.is_fully_defined()
            else tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=[], rt_dense_values=tensor, batched_input=False)
            for spec, tensor in zip(specs, tensors, strict=True)
        ]

    return tf.function(encode, autograph=False).get_concrete_function(*specs)


class SuperBatches:
    """An epoch over a tf.data set, `together` batches in one tensor; tf.data prepares the next `ahead` meanwhile."""

    def __init__(self, dataset: tf.data.Dataset, together: int, ahead: int = 1) -> None:
        self._dataset = _ragged(dataset).batch(together).prefetch(ahead)
        self._type = type_of_specs(dataset.element_spec)

    def __iter__(self) -> SuperBatchIterator:
        return SuperBatchIterator(iter(self._dataset), self._type)


class SuperBatchIterator(FeedIterator):
    """One pass over the super-batches."""

    def __init__(self, source: Iterator[Any], batch_type: BatchType) -> None:
        self._source, self._type = source, batch_type
        self._ready: deque[BatchSource] = deque()

    def batch_type(self) -> BatchType:
        """The type of the data set's batches."""
        return self._type

    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` batches, runs of equal shapes; StopIteration when none is left."""
        taken: list[BatchSource] = []
        while limit > 0:
            if not self._ready:
                element = next(self._source, None)
                if element is None:
                    break
                self._ready.extend(_runs(element))
            batches = self._ready.popleft()
            if batches.steps > limit:
                batches, rest = batches.split(limit)
                self._ready.appendleft(rest)
            taken.append(batches)
            limit -= batches.steps
        if not taken:
            raise StopIteration
        return taken


def _runs(element: Nest) -> list[BatchSource]:
    """The batches of one super-batch, neighbours of equal shapes together."""
    columns, layout = flatten(element, _column)
    lengths = np.stack([lengths for _, lengths in columns], axis=1)
    paddings = [0, *(np.flatnonzero((lengths[1:] != lengths[:-1]).any(axis=1)) + 1), len(lengths)]
    first_rows = np.vstack([np.zeros_like(lengths[:1]), np.cumsum(np.abs(lengths), axis=0)])
    return [
        _run(layout, [rows for rows, _ in columns], lengths[start], first_rows[start], first_rows[stop], stop - start)
        for start, stop in zip(paddings, paddings[1:], strict=False)
    ]


def _run(
    layout: BatchStructure,
    arrays: list[np.ndarray],
    lengths: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
    steps: int,
) -> BatchSource:
    shapes = tuple(
        array.shape[1:] if length == SCALAR else (int(length), *array.shape[1:])
        for array, length in zip(arrays, lengths, strict=True)
    )
    feeds = [RowFeed(array[a:b]) for array, a, b in zip(arrays, start, stop, strict=True)]
    return BatchSource(BatchSignature(layout, shapes, tuple(array.dtype for array in arrays)), int(steps), feeds)


SCALAR = -1
"""Mark in place of a length: one row for each step, without a batch axis."""


def _column(stacked: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The rows of an array of a super-batch, and the number of rows each step takes."""
    if isinstance(stacked, tf.RaggedTensor):
        # `numpy()` would copy; the engine only reads.
        return stacked.flat_values._numpy(), np.diff(stacked.row_splits._numpy())
    array = stacked._numpy()
    if array.ndim == 1:
        return array, np.full(len(array), SCALAR)
    return array.reshape(-1, *array.shape[2:]), np.full(len(array), array.shape[1])
