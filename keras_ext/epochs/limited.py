"""A pass over data of which an execution may take a number of steps only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from keras_ext.epochs.feeds import BatchSource, FeedIterator, take


class LimitedIterator(FeedIterator):
    """The next `steps` of a pass, each of one batch for each of `replicas`; `ended` where the pass has fewer left."""

    def __init__(self, source: Iterator[Any], steps: int, replicas: int = 1) -> None:
        self.source = source
        self._left, self._replicas = steps, replicas
        self.ended = False

    def __next__(self) -> Any:
        if self._left == 0:
            raise StopIteration
        try:
            batch = next(self.source)
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
            taken = take(self.source, asked)
        except StopIteration:
            self.ended = True
            raise
        got = sum(batches.steps for batches in taken) // self._replicas
        self.ended = got < asked
        self._left -= got
        return taken
