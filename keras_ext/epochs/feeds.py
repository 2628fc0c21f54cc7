"""Batches in the engine's form: a row feed for each array, for several steps of one shape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import tensorflow as tf

from engine.runtime.feeds import RowFeed
from keras_ext.epochs.arrays import as_array, joined, own_array
from keras_ext.epochs.batch_types import OPEN_ROWS, BatchType, batch_type, of_specs
from keras_ext.epochs.copies import BatchCopies
from keras_ext.epochs.orders import seeded_orders
from keras_ext.epochs.structure import BatchStructure, flatten
from keras_ext.types import Nest


@dataclass(frozen=True, slots=True)
class BatchSignature:
    """The properties of a batch that a program depends on: its nesting, and the shape and dtype of each array."""

    layout: BatchStructure
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    def __str__(self) -> str:
        """The arrays, as "float32[8, 3], int32[8]"; the nesting is left out."""
        return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in zip(self.dtypes, self.shapes, strict=True))

    @property
    def rows(self) -> int:
        """The samples of a batch; 0 for one of scalars."""
        return next((shape[0] for shape in self.shapes if shape), 0)


def signature_of(layout: BatchStructure, specs: Sequence[tf.TensorSpec]) -> BatchSignature:
    """The signature of batches of a layout, with a spec for each array, in which axes may be open."""
    shapes = tuple(tuple(spec.shape.as_list()) for spec in specs)
    return BatchSignature(layout, shapes, tuple(np.dtype(spec.dtype.as_numpy_dtype) for spec in specs))


def specs_of(signature: BatchSignature) -> Any:
    """The specs of a batch, nested as the data are."""
    pairs = zip(signature.shapes, signature.dtypes, strict=True)
    return signature.layout.unflatten(iter([tf.TensorSpec(shape, tf.as_dtype(dtype)) for shape, dtype in pairs]))


@dataclass(frozen=True, slots=True)
class BatchSource:
    """`steps` batches of one signature, with one feed for each array of a batch.

    `error` is what the data raised in place of the next batch; the batches are used before it is raised again.
    """

    signature: BatchSignature
    steps: int
    feeds: list[RowFeed]
    error: Exception | None = None

    def first(self) -> Any:
        """The first batch, nested as the data are."""
        rows = (
            feed.array[: shape[0]] if shape else feed.array[0]
            for feed, shape in zip(self.feeds, self.signature.shapes, strict=True)
        )
        return self.signature.layout.unflatten(iter(rows))

    def split(self, steps: int) -> tuple[BatchSource, BatchSource]:
        """The first `steps` batches and the others, of feeds whose rows are in order."""
        heads, tails = [], []
        for feed, shape in zip(self.feeds, self.signature.shapes, strict=True):
            rows = steps * (shape[0] if shape else 1)
            heads.append(RowFeed(feed.array[:rows]))
            tails.append(RowFeed(feed.array[rows:]))
        rest = BatchSource(self.signature, self.steps - steps, tails, self.error)
        return BatchSource(self.signature, steps, heads), rest


class FeedIterator(ABC):
    """One pass over the data. Iterating gives batches; `take` gives feeds for several steps at once."""

    _error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next batch, nested as the data are; StopIteration at the end. Raises an error of the data instead."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        batches = self.take(1)[0]
        self._error = batches.error
        return batches.first()

    @abstractmethod
    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` batches, runs of equal shapes; StopIteration when none is left."""

    def batch_type(self) -> BatchType:
        """The type of the source's batches, which have open rows if the source is a Python iterator."""
        return batch_type(getattr(self, "_source", None)) or OPEN_ROWS


class RowBatches:
    """An epoch over host arrays of at least one axis: each iterator draws its own order of rows.

    `shuffle` True permutes all rows, "batch" only those within each batch, False keeps their order. The orders of
    several `passes` of one iterator are Keras' if the program set TensorFlow's seed, and NumPy's if it did not.
    With `copied`, what the program writes into its arrays later changes no rows.
    """

    def __init__(
        self, structure: Nest, batch_size: int, shuffle: bool | str, copied: bool = False, passes: int = 1
    ) -> None:
        self.arrays, self.layout = flatten(structure, own_array if copied else as_array)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.rows = len(self.arrays[0]) if self.arrays else 0
        self.orders = seeded_orders(self.rows, shuffle, batch_size, passes)

    def __iter__(self) -> RowIterator:
        return RowIterator(self)

    def signature(self, batch_size: int) -> BatchSignature:
        """The signature of a batch of `batch_size` rows."""
        return BatchSignature(
            self.layout,
            tuple((batch_size, *array.shape[1:]) for array in self.arrays),
            tuple(array.dtype for array in self.arrays),
        )

    @cached_property
    def batch_type(self) -> BatchType:
        """The type of the batches, as Keras' data set of rows has it."""
        rows = None if self.rows % self.batch_size else self.batch_size
        specs = tuple(tf.TensorSpec((rows, *array.shape[1:]), array.dtype) for array in self.arrays)
        return of_specs(self.layout, specs)

    def permutation(self) -> np.ndarray | None:
        """The order of rows for one epoch from NumPy's generator, int64, or None for the natural one."""
        if self.shuffle != "batch":
            return np.random.permutation(self.rows) if self.shuffle else None
        starts = range(0, self.rows, self.batch_size)
        return np.concatenate([s + np.random.permutation(min(self.batch_size, self.rows - s)) for s in starts])


class RowIterator(FeedIterator):
    """One pass over the rows, whose `take` does not touch the data."""

    def __init__(self, batches: RowBatches) -> None:
        self._batches = batches
        self._order: np.ndarray | None = None
        self._seeded = None if batches.orders is None else iter(batches.orders)
        self._position = 0

    @property
    def is_seeded(self) -> bool:
        """Whether the orders come from TensorFlow's seed."""
        return self._seeded is not None

    def batch_type(self) -> BatchType:
        return self._batches.batch_type

    def __next__(self) -> Any:
        feeds = self.take(1)[0].feeds
        arrays = (feed.array if feed.rows is None else feed.array[feed.rows] for feed in feeds)
        return self._batches.layout.unflatten(iter(arrays))

    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` batches: full ones, then the partial one; StopIteration at the end."""
        batches, taken = self._batches, []
        full_batches = min(limit, (batches.rows - self._position) // batches.batch_size)
        if full_batches:
            taken.append(self._span(full_batches, batches.batch_size))
        remaining = batches.rows - self._position
        if full_batches < limit and remaining:
            taken.append(self._span(1, remaining))
        if not taken:
            raise StopIteration
        return taken

    def _span(self, steps: int, batch_size: int) -> BatchSource:
        if self._position == 0:
            # Not in the constructor: Keras creates iterators it never uses.
            self._order = self._batches.permutation() if self._seeded is None else next(self._seeded)
        span = slice(self._position, self._position + steps * batch_size)
        self._position = span.stop
        if self._order is None:
            feeds = [RowFeed(array[span]) for array in self._batches.arrays]
        else:
            feeds = [RowFeed(array, self._order[span]) for array in self._batches.arrays]
        return BatchSource(self._batches.signature(batch_size), steps, feeds)


def take(iterator: Iterator[Any], limit: int) -> list[BatchSource]:
    """Takes up to `limit` batches of any iterator, grouped by shape; StopIteration when none is left.

    The iterator may give the same arrays again, with other values: a batch is copied before the next one is read.
    If the iterator raises after some batches, the last of them carries the error.
    """
    if isinstance(iterator, FeedIterator):
        return iterator.take(limit)
    runs, copies = _Runs(), BatchCopies(limit)
    for _ in range(limit):
        try:
            batch = next(iterator)
            copies.begin_batch()
            arrays = flatten(batch, copies)
        except StopIteration:
            break
        except Exception as error:
            if not runs:
                raise
            *before, last = runs.sources()
            return [*before, replace(last, error=error)]
        runs.add(*arrays)
    if not runs:
        raise StopIteration
    return runs.sources()


def together(parts: list[BatchSource]) -> BatchSource:
    """Parts of one signature joined into one."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part.feeds for part in parts), strict=True)
    feeds = [RowFeed(joined([feed.step(0, feed.available_rows()) for feed in column])) for column in columns]
    return BatchSource(parts[0].signature, sum(part.steps for part in parts), feeds, parts[-1].error)


def as_runs(parts: list[BatchSource]) -> list[BatchSource]:
    """Parts with neighbours of one signature joined: those of an update may come from two super-batches or passes."""
    runs = groupby(parts, key=lambda part: part.signature)
    return [together(list(run)) for _, run in runs]


def grouped(batches: list[Any]) -> list[BatchSource]:
    """Runs of batches of equal structure, shape and dtype, each joined into one feed for each array."""
    runs = _Runs()
    for batch in batches:
        runs.add(*flatten(batch, as_array))
    return runs.sources()


class _Runs(list[tuple[BatchSignature, list[list[np.ndarray]]]]):
    """Runs of neighbouring batches of one signature: the arrays of each batch."""

    def add(self, arrays: list[np.ndarray], layout: BatchStructure) -> None:
        """Appends a batch."""
        signature = BatchSignature(layout, tuple(a.shape for a in arrays), tuple(a.dtype for a in arrays))
        if not self or self[-1][0] != signature:
            self.append((signature, []))
        self[-1][1].append(arrays)

    def sources(self) -> list[BatchSource]:
        """Each run joined into one feed for each array."""
        return [
            BatchSource(signature, len(run), [RowFeed(joined(list(column))) for column in zip(*run, strict=True)])
            for signature, run in self
        ]
