"""Batches of Python iterators, read by a thread while the engine computes."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.errors import InternalError
from ipu._internal.config.system import current_system
from keras_ext.epochs.feeds import BatchSource, FeedIterator, take

PATIENCE = 1.0
"""Seconds that an interruption waits for a batch that is being read; the thread ends after it anyway."""


class ReadAhead:
    """An epoch over a Python iterable. `open_epoch` is called for each one.

    At most `needed` batches of an epoch are read ahead, if it is not None: a generator keeps others for its next use.
    """

    def __init__(self, open_epoch: Callable[[], Iterable[Any]], needed: int | None = None) -> None:
        self._open_epoch, self._needed = open_epoch, needed
        self._latest: ReadAheadIterator | None = None

    def __iter__(self) -> ReadAheadIterator:
        if self._latest is not None:
            self._latest.end()
        self._latest = ReadAheadIterator(iter(self._open_epoch()), self._needed)
        return self._latest

    def close(self) -> None:
        """Ends the reading of the latest epoch; waits up to PATIENCE for the batch that is being read."""
        if self._latest is not None:
            self._latest.close()


class ReadAheadIterator(FeedIterator):
    """One pass over a Python iterator: while the engine computes with one group of batches, a thread reads the next.

    Without IPUConfig.optimizations.prefetch_data_streams groups are read on demand.
    Each group has a thread of its own that ends with it, so there is none when the caller takes no more.
    No more than `needed` batches are read before they are asked for.
    """

    def __init__(self, source: Iterator[Any], needed: int | None = None) -> None:
        self._source = source
        self._left = sys.maxsize if needed is None else needed
        self._group: _Group | None = None
        self._ready: deque[BatchSource] = deque()
        self._closed = False

    def take(self, limit: int) -> list[BatchSource]:
        """The feeds of up to `limit` batches, runs of equal shapes; StopIteration when none is left.

        If the iterator raises, the last batch before the error carries it; without one, the error is raised.
        """
        if self._closed:
            raise StopIteration
        taken: list[BatchSource] = []
        left = limit
        while left and self._read(left):
            batches = self._ready.popleft()
            if batches.steps > left:
                batches, rest = batches.split(left)
                self._ready.appendleft(rest)
            taken.append(batches)
            left -= batches.steps
            if batches.error is not None:
                self._left = 0
                return taken
        if not taken:
            raise StopIteration
        self._left -= limit - left
        ahead = min(limit, self._left)
        if ahead > 0 and not self._ready and current_system().config.optimizations.prefetch_data_streams:
            self._group = self._group or _Group(self._source, ahead)
        return taken

    def _read(self, limit: int) -> bool:
        """Whether any batches are ready, after reading up to `limit` if there were none."""
        if not self._ready:
            group = self._group or _Group(self._source, limit)
            self._group = None
            with contextlib.suppress(StopIteration):
                self._ready.extend(group.batches())
        return bool(self._ready)

    def close(self) -> None:
        """Reads no more; waits up to PATIENCE for the batch that is being read."""
        self._end(PATIENCE)

    def end(self) -> None:
        """Reads no more; waits for the batch that is being read: a generator cannot be read by two threads."""
        self._end(None)

    def _end(self, patience: float | None) -> None:
        self._closed = True
        group, self._group = self._group, None
        if group is not None:
            group.cancel(patience)


class _Group:
    """A group of up to `limit` batches that a thread reads."""

    def __init__(self, source: Iterator[Any], limit: int) -> None:
        self._source, self._limit = source, limit
        self._cancelled = False
        self._batches: list[BatchSource] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="ipu-read-ahead", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self._batches = take(self._uncancelled(), self._limit)
        except BaseException as error:  # re-raised in the thread that takes the batches
            self._error = error

    def _uncancelled(self) -> Iterator[Any]:
        while not self._cancelled:
            try:
                batch = next(self._source)
            except StopIteration:
                return
            yield batch

    def batches(self) -> list[BatchSource]:
        """The batches, once they are read; re-raises the iterator's error."""
        try:
            self._thread.join()
        except BaseException:
            self._cancelled = True
            raise
        if self._error is not None:
            raise self._error
        if self._batches is None:
            raise InternalError(
                "Expected the thread that reads batches ahead to read them. Received: a thread that has ended, as in a "
                "fork. Make the iterator in the process that uses it."
            )
        return self._batches

    def cancel(self, patience: float | None) -> None:
        """Ends the thread after the batch that it is reading, and waits up to `patience` seconds for that."""
        self._cancelled = True
        self._thread.join(patience)
