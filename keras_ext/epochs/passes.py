"""Counted passes over a tf.data set, so that a resumed fit takes the same data as an uninterrupted one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from keras_ext.epochs.feeds import BatchSource, FeedIterator, take


class DataPasses:
    """An iterable over `source`. tf.data draws the order of a pass when it is opened, one pass after the other.

    `goes_on` says whether an epoch continues the pass of the epoch before it; if not, `unused` passes are opened
    before that of the first epoch.
    """

    def __init__(self, source: Iterable[Any], goes_on: bool, unused: int = 0) -> None:
        self._source = source
        self._goes_on, self._unused = goes_on, unused
        self._opened = 0
        self._latest: CountedPass | None = None
        self._resumed: CountedPass | None = None

    def __iter__(self) -> CountedPass:
        if self._resumed is None:
            return self._open()
        resumed, self._resumed = self._resumed, None
        return resumed

    def _open(self) -> CountedPass:
        self._opened += 1
        self._latest = CountedPass(iter(self._source))
        return self._latest

    def position(self) -> tuple[int, int]:
        """The number of passes opened, and of batches (or steps of all replicas) taken from the last."""
        return self._opened, 0 if self._latest is None else self._latest.taken

    def resume(self, opened: int, taken: int) -> None:
        """Goes, before the first epoch, to a `position` recorded at the end of an epoch."""
        for _ in range(opened if self._goes_on else opened - self._unused):
            self._open()
        if self._goes_on and self._latest is not None:
            self._resumed = self._latest
            for _ in range(taken):
                next(self._resumed)


class CountedPass(FeedIterator):
    """One pass; `taken` is the number of batches, or steps of all replicas."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self.taken = 0

    def __next__(self) -> Any:
        batch = next(self._source)
        self.taken += 1
        return batch

    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` steps, runs of equal shapes; StopIteration when none is left."""
        self.taken += limit
        return take(self._source, limit)
