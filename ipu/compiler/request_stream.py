"""Requests to a program with an infeed and an outfeed: numbered rows in, and each caller's own results out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from engine.runtime.rings import InfeedRing, OutfeedRing

NAP = 0.0005
"""Seconds between looks at the outfeed."""


class RequestStream:
    """Feeds a program that is run again and again as long as there are requests, and never while there are none.

    A run may ask for more rows than there are requests, because it is a loop or a pipeline. After `timeout` seconds
    without a request it is given zeros until it ends; their results nobody sees.
    """

    def __init__(self, infeed: InfeedRing, outfeed: OutfeedRing, timeout: float) -> None:
        self._infeed, self._outfeed, self._timeout = infeed, outfeed, timeout
        self._changed = threading.Condition()
        self._given = self._taken = 0
        self._expected: set[int] = set()
        self._results: dict[int, list[np.ndarray]] = {}
        self._last = time.monotonic()
        self._running = False

    def request(self, row: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for a row of inputs, an array each. Raises what ended the program, if it has ended."""
        number = self._put([np.ascontiguousarray(array)[None] for array in row], expected=True)
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
                    self._running = bool(self._expected)
                    if not self._running:
                        self._changed.wait()
                        continue
                run()
                with self._changed:
                    self._collect()
        except BaseException as error:  # whoever waits for a result gets it
            self.close(error)

    def fill_up(self) -> None:
        """Gives a run that waits in vain zeros; returns when the stream is closed."""
        zeros = [np.zeros((1, *shape.dimensions), shape.dtype) for shape in self._infeed.shapes]
        while not self._infeed.closed:
            with self._changed:
                if not self._running:
                    self._changed.wait()
                    continue
                self._collect()
                idle = time.monotonic() - self._last
            if idle >= self._timeout and not self._infeed.available():
                self._put(zeros, expected=False)
            time.sleep(max(NAP, min(self._timeout - idle, self._timeout)))

    def close(self, error: BaseException | None = None) -> None:
        """Ends the program; requests that wait raise `error`."""
        self._infeed.close(error)
        self._outfeed.close(error)
        with self._changed:
            self._changed.notify_all()

    def _put(self, row: list[np.ndarray], expected: bool) -> int:
        """Hands over a row, waiting for room with the lock released, and returns its number."""
        while True:
            with self._changed:
                if self._infeed.room() or self._infeed.closed:
                    self._infeed.put(row)
                    number, self._given = self._given, self._given + 1
                    if expected:
                        self._expected.add(number)
                        self._last = time.monotonic()
                    self._changed.notify_all()
                    return number
                self._collect()
            time.sleep(NAP)

    def _collect(self) -> None:
        """Takes results out of the ring, those of zeros to forget them; the lock is held."""
        rows = self._outfeed.take()
        for k in range(len(rows[0]) if rows else 0):
            if self._taken in self._expected:
                self._expected.discard(self._taken)
                self._results[self._taken] = [leaf[k] for leaf in rows or []]
            self._taken += 1
