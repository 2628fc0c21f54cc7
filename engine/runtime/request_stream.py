"""Requests to a program with an infeed and an outfeed: numbered rows in, and each caller's own results out."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from engine.runtime.rings import InfeedRing, OutfeedRing

NAP = 0.0005
"""Seconds between polls of the outfeed."""
MOST_ZEROS = 32
"""Most rows of zeros that are pushed at once to flush a pipeline."""


class RequestStream:
    """Feeds a program that is run repeatedly while there are requests.

    A run may need more rows than there are requests, because it is a loop or a pipeline. After `timeout` seconds
    without a request it is fed zeros until it ends; their results are dropped.
    """

    def __init__(self, infeed: InfeedRing, outfeed: OutfeedRing, timeout: float) -> None:
        self._infeed, self._outfeed, self._timeout = infeed, outfeed, timeout
        self._changed = threading.Condition()
        self._pending: deque[int | None] = deque()
        """The request of each row without results so far, None for zeros; in order."""
        self._requests = self._waiting = 0
        self._zeros = 1
        self._results: dict[int, list[np.ndarray]] = {}
        self._last = time.monotonic()
        self._running = False

    def request(self, row: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for a row of inputs, an array each. Raises the error that ended the program, if it has ended."""
        number = self._put([np.ascontiguousarray(array)[None] for array in row])
        while True:
            ended = self._outfeed.closed
            with self._changed:
                self._collect()
                if number in self._results:
                    return self._results.pop(number)
            if ended:
                raise self._outfeed.error
            self._outfeed.wait(NAP)

    def serve(self, run: Callable[[], object]) -> None:
        """Runs the program while there are requests; returns when it is closed, or with the error of the program."""
        try:
            while not self._infeed.closed:
                with self._changed:
                    self._take_back_zeros()
                    self._running, self._zeros = self._waiting > 0, 1
                    if not self._running:
                        self._changed.wait()
                        continue
                    self._changed.notify_all()
                run()
                with self._changed:
                    self._collect()
        except BaseException as error:  # raised in the callers that wait for a result
            self.close(error)

    def fill_up(self) -> None:
        """Feeds zeros to a run that waits without requests; returns when the stream is closed."""
        try:
            self._fill_up()
        except BaseException as error:  # raised in the callers that wait for a result
            self.close(error)

    def _fill_up(self) -> None:
        zeros = [np.zeros((MOST_ZEROS, *shape.dimensions), shape.dtype) for shape in self._infeed.shapes]
        while not self._infeed.closed:
            with self._changed:
                if not self._running:
                    self._changed.wait()
                    continue
                self._collect()
                idle = time.monotonic() - self._last
                if idle >= self._timeout and not self._infeed.available() and not self._infeed.closed:
                    # A long run needs many zeros; those that it does not take are removed.
                    self._zeros = max(1, min(2 * self._zeros, MOST_ZEROS, self._infeed.space()))
                    self._infeed.put([leaf[: self._zeros] for leaf in zeros])
                    self._pending += [None] * self._zeros
            time.sleep(max(NAP, self._timeout - idle))

    def close(self, error: BaseException | None = None) -> None:
        """Ends the program; requests that wait raise `error`."""
        self._infeed.close(error)
        self._outfeed.close(error)
        with self._changed:
            self._changed.notify_all()

    def _put(self, row: list[np.ndarray]) -> int:
        """Enqueues a request, waiting for space with the lock released, and returns its number."""
        while True:
            with self._changed:
                if self._infeed.space() or self._infeed.closed:
                    self._infeed.put(row)
                    self._requests += 1
                    self._waiting += 1
                    self._pending.append(self._requests)
                    self._last, self._zeros = time.monotonic(), 1
                    self._changed.notify_all()
                    return self._requests
                self._collect()
            time.sleep(NAP)

    def _take_back_zeros(self) -> None:
        """Removes zeros that the run that has ended did not take, up to the next request; the lock is held."""
        while available := self._infeed.available():
            slot = len(self._pending) - available
            if self._pending[slot] is not None:
                break
            self._infeed.next_row()
            del self._pending[slot]

    def _collect(self) -> None:
        """Takes results out of the ring and drops the results of rows of zeros; the lock is held."""
        rows = self._outfeed.take()
        for k in range(len(rows[0]) if rows else 0):
            request = self._pending.popleft()
            if request is not None:
                self._waiting -= 1
                self._results[request] = [leaf[k] for leaf in rows or []]
