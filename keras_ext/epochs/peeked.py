"""Data whose first batch is needed before the first pass: that pass is not opened, nor its data read, twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from keras_ext.epochs.feeds import BatchSource, FeedIterator, take


class PeekedBatches:
    """An iterable over `source`. The pass that is opened for its `first_batch` is the next one that is iterated over.

    A data set draws another order of rows for each pass, and one that reads from a stream gives its rows once.
    """

    def __init__(self, source: Iterable[Any], steps: int) -> None:
        self._source, self._steps = source, steps
        self._opened: PeekedIterator | None = None

    def first_batch(self) -> Any:
        """The first batch of the next pass, nested as the data are; None if there is none."""
        if self._opened is None:
            try:
                self._opened = PeekedIterator(iter(self._source), self._steps)
            except StopIteration:
                return None
        return self._opened.first_batch()

    def __iter__(self) -> Iterator[Any]:
        opened, self._opened = self._opened, None
        return iter(self._source) if opened is None else opened


class PeekedIterator(FeedIterator):
    """A pass whose first `steps` batches are read at once, as its first execution takes them."""

    def __init__(self, source: Iterator[Any], steps: int) -> None:
        self._source = source
        self._ready: list[BatchSource] = take(source, steps)

    def first_batch(self) -> Any:
        """The first batch, before any is taken."""
        return self._ready[0].first()

    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` batches, runs of equal shapes; StopIteration when none is left."""
        taken: list[BatchSource] = []
        while limit and self._ready:
            batches = self._ready.pop(0)
            if batches.steps > limit:
                batches, rest = batches.split(limit)
                self._ready.insert(0, rest)
            taken.append(batches)
            limit -= batches.steps
        if not taken:
            return take(self._source, limit)
        with contextlib.suppress(StopIteration):
            if limit and taken[-1].error is None:
                taken += take(self._source, limit)
        return taken
