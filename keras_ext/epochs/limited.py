"""A pass over data of which an execution may take a number of steps only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from keras_ext.epochs.feeds import BatchSource, FeedIterator, take


def unlimited(iterator: Iterator[Any]) -> Iterator[Any]:
    """The pass of which an iterator gives a part, or the iterator itself."""
    return iterator._source if isinstance(iterator, LimitedIterator) else iterator


class LimitedIterator(FeedIterator):
    """The next `steps` of a pass, each of one batch for each of `replicas`; `ended` where the pass has fewer left.

    `error` is what the data raised after the steps taken last.
    """

    def __init__(self, source: Iterator[Any], steps: int, replicas: int = 1) -> None:
        self._source = source
        self._left, self._replicas = steps, replicas
        self.ended = False
        self.error: Exception | None = None

    def __next__(self) -> Any:
        if self._left == 0:
            raise StopIteration
        try:
            batch = next(self._source)
        except StopIteration:
            self.ended = True
            raise
        self._left -= 1
        return batch

    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` steps, runs of equal shapes; StopIteration when none is left."""
        asked = min(limit, self._left)
        if asked == 0:
            raise StopIteration
        try:
            taken = take(self._source, asked)
        except StopIteration:
            self.ended = True
            raise
        got = sum(batches.steps for batches in taken) // self._replicas
        self.error = taken[-1].error
        self.ended = got < asked and self.error is None
        self._left -= got
        return taken
