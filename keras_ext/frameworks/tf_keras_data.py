"""Data of tf_keras: arrays go to the engine as rows, everything else through Keras' tf.data pipelines."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tf_keras import backend
from tf_keras.src.engine import data_adapter, training_utils

from engine.partition.accumulation import Accumulation
from keras_ext.attempts import attempt
from keras_ext.epochs.feeds import BatchSource, RowBatches, RowIterator
from keras_ext.epochs.limited import LimitedIterator
from keras_ext.epochs.partial_batch import partial_batch
from keras_ext.epochs.passes import DataPasses
from keras_ext.epochs.super_batches import super_batches
from keras_ext.replication import ReplicaIterator, ReplicatedBatches, replicas_of, steps_per_replica
from keras_ext.runs import arrays_may_change, executions_ahead, opening, pace
from keras_ext.types import Batch, KerasModel, Nest
from keras_ext.updates import check_batches, check_executions

ARRAY_ADAPTERS = (data_adapter.TensorLikeDataAdapter, data_adapter.ListsOfScalarsDataAdapter)


class ArrayRows:
    """Arrays of equal length, nested as a batch is, with class weights converted to sample weights.

    Each epoch begins with the first row if they are `recreated`. Raises ValueError when the lengths differ.
    """

    def __init__(
        self,
        x: Nest,
        y: Nest = None,
        sample_weight: Nest = None,
        class_weight: dict | None = None,
        recreated: bool = False,
    ) -> None:
        self.recreated = recreated
        x, y, sample_weight = tf.nest.map_structure(_as_keras_would, (x, y, sample_weight))
        x, y, sample_weight = tf.__internal__.nest.list_to_tuple((x, y, sample_weight))
        weights, _, _ = training_utils.handle_partial_sample_weights(y, sample_weight, None, check_all_flat=True)
        self.structure = data_adapter.pack_x_y_sample_weight(x, y, weights)
        data_adapter._check_data_cardinality(self.structure)
        if class_weight:
            self.structure = _with_class_weights(self.structure, class_weight)


def _with_class_weights(structure: Nest, class_weight: dict) -> Any:
    """Adds class weights as sample weights. Raises ValueError for several outputs, and for classes not 0 to n - 1."""
    x, *others = structure
    tensors = tf.nest.map_structure(tf.convert_to_tensor, others)
    return data_adapter._make_class_weight_map_fn(class_weight)(x, *tensors)


def _as_keras_would(value: Nest) -> Any:
    """Converts a value as Keras does: a pandas series to a column, NumPy's floats to Keras' float type."""
    if data_adapter._is_pandas_series(value):
        value = np.expand_dims(value.to_numpy(), axis=-1)
    if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating):
        return np.asarray(value, dtype=backend.floatx())
    return value


class RepeatedRows(RowIterator):
    """Several passes over the rows, one after the other: Keras draws all epochs from one iterator."""

    def __init__(self, batches: RowBatches, passes: int) -> None:
        super().__init__(batches)
        self._passes = passes

    def next_pass(self) -> None:
        """Leaves out the rest of the pass that has begun."""
        self._passes -= self._position > 0
        self._position = 0

    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` batches, across passes; StopIteration after the last pass."""
        taken: list[BatchSource] = []
        while limit > 0 and self._passes > 0:
            try:
                more = super().take(limit)
            except StopIteration:
                self._passes -= 1
                self._position = 0
                continue
            taken += more
            limit -= sum(batches.steps for batches in more)
        if not taken:
            raise StopIteration
        return taken


class RepeatedRowBatches(RowBatches):
    """The rows of all epochs."""

    def __init__(
        self, structure: Nest, batch_size: int, shuffle: bool | str, passes: int, copied: bool = False
    ) -> None:
        super().__init__(structure, batch_size, shuffle, copied, passes)
        self._passes = passes

    def __iter__(self) -> RepeatedRows:
        return RepeatedRows(self, self._passes)


class RowsAdapter(data_adapter.DataAdapter):
    """Keras' adapter for `ArrayRows`, which only our handlers create."""

    @staticmethod
    def can_handle(x: Nest, y: Nest = None) -> bool:
        """Whether `x` is `ArrayRows`."""
        return isinstance(x, ArrayRows)

    def __init__(
        self,
        x: ArrayRows,
        y: None = None,
        batch_size: int | None = None,
        steps: int | None = None,
        epochs: int = 1,
        shuffle: bool | str = False,
        **others: object,
    ) -> None:
        super().__init__(x, y, **others)
        rows = len(tf.nest.flatten(x.structure)[0])
        self._batch_size = batch_size or (-(-rows // steps) if steps else 32)
        shuffle = shuffle.lower() if isinstance(shuffle, str) else shuffle
        self._recreated = x.recreated
        self._dataset = RepeatedRowBatches(x.structure, self._batch_size, shuffle, epochs, arrays_may_change())

    def get_dataset(self) -> RowBatches:
        """The iterable of all epochs."""
        return self._dataset

    def get_size(self) -> int:
        """The number of batches of one pass, the partial one included."""
        return -(-self._dataset.rows // self._batch_size)

    def batch_size(self) -> int:
        """The number of rows of a full batch."""
        return self._batch_size

    def has_partial_batch(self) -> bool:
        """Whether the last batch of a pass has fewer rows."""
        return self._dataset.rows % self._batch_size > 0

    def partial_batch_size(self) -> int | None:
        """The number of rows of the last batch where they are fewer; else None."""
        return self._dataset.rows % self._batch_size or None

    def partial_batch(self) -> tuple[int, int] | None:
        """The rows of the last batch, if they are fewer, and of the others; else None."""
        rows = self.partial_batch_size()
        return None if rows is None else (rows, self._batch_size)

    def should_recreate_iterator(self) -> bool:
        """Whether each epoch begins with the first row: else, with `steps_per_epoch`, it goes on after the last one."""
        return self._recreated


class OnePass:
    """One pass over a generator for all validations of a fit, so that none loses what is read ahead of its end."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return self._pass

    @functools.cached_property
    def _pass(self) -> Iterator[Batch]:
        return iter(self._batches)


class IPUDataHandler(data_adapter.DataHandler):
    """Keras' bookkeeping of epochs and steps, for `replicas` that take the batches alternately."""

    _dataset: Iterable[Batch]

    def __init__(self, *data: Nest, replicas: int, **arguments: Any) -> None:
        self._replicas = replicas
        self._counted: int | None = None
        self._unpaced: int | None = None
        super().__init__(*data, **arguments)
        self._first_epoch = self._initial_epoch
        steps, run = int(self._steps_per_execution.numpy()), opening()
        accumulation = Accumulation() if run is None else run.accumulation()
        check_batches(self._partial_batch(), accumulation, replicas)
        check_executions(self._inferred_steps, steps, accumulation)
        batches = super_batches(self._dataset, steps * replicas, executions_ahead())
        adapter = self._adapter
        if isinstance(adapter, data_adapter.GeneratorDataAdapter) and not adapter.should_recreate_iterator():
            batches = OnePass(batches)
        self._dataset = batches if replicas == 1 else ReplicatedBatches(batches, replicas)
        if run is not None and isinstance(self._adapter, data_adapter.DatasetAdapter):
            goes_on = not self._adapter.should_recreate_iterator()
            self._dataset = run.passes = DataPasses(self._dataset, goes_on, unused=1)

    def enumerate_epochs(self) -> Iterator[tuple[int, LimitedIterator]]:
        """Yields each epoch with its pass over the data: one pass for all epochs, or a new one for each."""
        latest = None
        for epoch, iterator in super().enumerate_epochs():
            rows = iterator.source if isinstance(iterator, ReplicaIterator) else iterator
            if latest is None and self._initial_epoch > self._first_epoch:
                self._skip_epochs(rows, self._initial_epoch - self._first_epoch)
            if iterator is latest:
                self._end_epoch(rows)
            else:
                latest, self._pass = iterator, LimitedIterator(iterator, sys.maxsize, self._replicas)
                if attempt.value is not None and self._replicas == 1:
                    attempt.value.note_pass(iterator, opened=1 + self._adapter.should_recreate_iterator())
                    attempt.value.note_enqueuer(self._adapter)
            yield epoch, self._pass

    def _skip_epochs(self, rows: Iterator[Any], epochs: int) -> None:
        """Takes the batches of epochs that a resumed fit has behind it, where orders come from a seed."""
        if isinstance(rows, RepeatedRows) and rows.is_seeded and self._inferred_steps is not None:
            for _ in range(epochs):
                rows.take(self._inferred_steps * self._replicas)
                self._end_epoch(rows)

    def _end_epoch(self, rows: Iterator[Any]) -> None:
        """Leaves out the batches of a pass that do not divide among replicas, where an epoch is a pass.

        Without replicas an epoch that resumes at a later step ends inside of a pass, and the next one goes on there.
        """
        if self._replicas > 1 and isinstance(rows, RepeatedRows) and self._steps_per_epoch is None:
            rows.next_pass()

    def steps(self) -> Iterator[int]:
        """Yields the first step of each execution; an execution that the data do not fill is the last one."""
        most = int(self._steps_per_execution.numpy())
        for step in self._paced_steps(most):
            yield step
            if self._pass.error is not None:
                raise self._pass.error
            if self._pass.ended and not self._insufficient_data and self._inferred_steps is not None:
                with self.catch_stop_iteration():
                    raise StopIteration

    def _paced_steps(self, most: int) -> Iterator[int]:
        """Yields the first steps of executions of at most `most` steps, or of fewer while a progress bar shows them."""
        if pace.value is None:
            yield from super().steps()
            return
        self._unpaced = most
        self._steps_per_execution.assign(pace.value.steps(most))
        for step in super().steps():
            begun = time.perf_counter()
            yield step
            pace.value.measured(self._step_increment + 1, begun)
            self._steps_per_execution.assign(pace.value.steps(most))

    @contextlib.contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        """Ends an epoch like Keras; restores the program's number of steps, after errors and interruptions, too."""
        try:
            with super().catch_stop_iteration():
                yield
        finally:
            if self._unpaced is not None:
                self._steps_per_execution.assign(self._unpaced)
                self._unpaced = None

    def _partial_batch(self) -> tuple[int, int] | None:
        if isinstance(self._adapter, RowsAdapter):
            return self._adapter.partial_batch()
        return partial_batch(self._dataset, self._steps_per_epoch)

    def _infer_steps(self, steps: int | None, dataset: tf.data.Dataset) -> int | None:
        """Keras counts the batches of all replicas here, and the steps of each everywhere else."""
        batches = super()._infer_steps(steps, dataset)
        if batches is None or batches == self._counted:
            return None if batches is None else batches // self._replicas
        self._counted = batches
        return steps_per_replica(batches, self._replicas)


def data_handler(x: Nest, y: Nest = None, *, model: KerasModel, **arguments: Any) -> data_adapter.DataHandler:
    """Keras' handler of epochs and steps for a strategy's model; raises ValueError when there are no data."""
    adapter = data_adapter.select_data_adapter(x, y)
    # Keras shuffles all batches, and the rows of each array of a batch by themselves.
    by_batches = str(arguments.get("shuffle", False)).lower() == "batch"
    if adapter in ARRAY_ADAPTERS and not by_batches:
        weights, class_weight = arguments.pop("sample_weight", None), arguments.pop("class_weight", None)
        are_lists = adapter is data_adapter.ListsOfScalarsDataAdapter
        if are_lists:
            x, y, weights = (None if each is None else np.asarray(each) for each in (x, y, weights))
        x, y = ArrayRows(x, y, weights, class_weight, recreated=are_lists), None
    try:
        # Without the model: Keras would call it to build it, eagerly, where tracing a step builds it as well.
        replicas = 1 if model is None else replicas_of(model.distribute_strategy)
        handler = IPUDataHandler(x, y, model=None, replicas=replicas, **arguments)
    except StopIteration as end:
        raise ValueError("Expected a generator with at least one batch. Received: a generator without any.") from end
    handler._model = model
    return handler


def single_batch(
    x: Nest, y: Nest = None, sample_weight: Nest = None, class_weight: dict[int, float] | None = None
) -> Iterator[Any]:
    """An iterator over one batch of all the rows; a batch of inputs alone is a tuple, too."""
    structure = ArrayRows(x, y, sample_weight, class_weight).structure
    return iter([structure if isinstance(structure, tuple) else (structure,)])
