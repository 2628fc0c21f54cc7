"""Dynamic batching: concurrent requests share a batch of the compiled program."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.errors import CallTimeout
from engine.serving.errors import RequestError
from engine.serving.servable import Arrays, Servable
from engine.single_thread import SingleThread

LEAST_SECONDS = 0.001
"""Least seconds for a batch, even if its requests' deadlines are sooner."""

AT_ONCE = 4
"""Most batches of one request that wait at the same time. The batch of a small request may wait for these."""


@dataclass
class RequestPart:
    """Rows of one request that fit into a batch, a future of their results, and their deadline (monotonic seconds)."""

    arrays: Arrays
    rows: int
    results: asyncio.Future[Arrays]
    end: float | None


class Batcher:
    """A thread that runs the batches of `servable` one after the other; a brief program runs in the event loop.

    Requests that arrive while the program runs share the next batch. If it is idle, the first request waits for
    others: for `window` seconds, or until a batch is full, or until as many rows wait as before the last batch. A
    partial batch is padded with its last row, and the padding is cut off the results. If inputs and outputs have no
    common batch dimension, each request is a batch. A batch whose requests have all waited for `limit` seconds is
    stopped, so that the next can run.
    """

    def __init__(self, servable: Servable, window: float, most_waiting: int, limit: float | None = None) -> None:
        self.servable = servable
        self._batch_size = servable.manifest.batch_size
        self._window = window
        self._most_waiting = most_waiting
        self._limit = limit
        self._waiting: deque[RequestPart] = deque()
        self._promised = 0
        """Number of batches of the requests that have not been answered."""
        self._arrived = asyncio.Event()
        self._expected = self._batch_size or 1
        self._thread = SingleThread("ipu-serving")
        self._task: asyncio.Task[None] | None = None
        self._uses, self._unused = 0, asyncio.Event()
        self._unused.set()

    def start(self) -> None:
        """Start to take requests, in the running event loop; do nothing if the batcher has started."""
        self._task = self._task or asyncio.get_running_loop().create_task(self._work())

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A context that keeps the batcher in use for a request that will ask for a prediction."""
        self._uses += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._uses -= 1
            if not self._uses:
                self._unused.set()

    async def drain(self) -> None:
        """Stops once no request uses the batcher."""
        await self._unused.wait()
        await self.stop()

    async def stop(self) -> None:
        """Stops after the running batch; requests that still wait get a RequestError, 503."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        while self._waiting:
            part = self._waiting.popleft()
            if not part.results.done():
                part.results.set_exception(RequestError(503, "The server is shutting down"))
        self._thread.shutdown(wait=True)

    async def predict(self, arrays: Arrays) -> Arrays:
        """The outputs for any number of rows, at least one; without a common batch dimension, for one whole batch.

        Raises RequestError: 503 if too many batches wait, 504 if the program takes too long, 500 if it fails.
        """
        size = self._batch_size
        rows = 1 if size is None else len(arrays[0])
        step = size or 1
        count = -(-rows // step)
        if self._promised + count > self._most_waiting:
            raise RequestError(503, f"The queue is full: {self._most_waiting} batches wait, its limit")
        end = None if self._limit is None else time.monotonic() + self._limit
        starts = range(0, rows, step)
        self._promised += count
        try:
            results: list[Arrays] = []
            for first in range(0, count, AT_ONCE):
                results += await self._results(arrays, starts[first : first + AT_ONCE], end)
        finally:
            self._promised -= count
        return results[0] if count == 1 else [np.concatenate(column) for column in zip(*results, strict=True)]

    async def _results(self, arrays: Arrays, starts: range, end: float | None) -> list[Arrays]:
        """The outputs of the batches that begin at these rows."""
        loop, size = asyncio.get_running_loop(), self._batch_size
        parts = []
        for start in starts:
            rows = arrays if size is None else [array[start : start + size] for array in arrays]
            parts.append(RequestPart(rows, 1 if size is None else len(rows[0]), loop.create_future(), end))
        self._waiting.extend(parts)
        self._arrived.set()
        try:
            return list(await asyncio.gather(*(part.results for part in parts)))
        finally:
            for part in parts:
                part.results.cancel()

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            await self._gather()
            if self.servable.is_brief:  # without a thread, nothing else lets the event loop serve others
                await asyncio.sleep(0)
            batch = self._next_batch()
            if not self._waiting:
                self._arrived.clear()
            if not batch:
                continue
            try:
                results = await self._results_of(batch)
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # of a killed thread, too: requests would wait for ever
                if self._thread.error is not None:
                    self._thread = SingleThread("ipu-serving")
                status = 504 if isinstance(error, CallTimeout) else 500
                for part in batch:
                    if not part.results.done():
                        part.results.set_exception(RequestError(status, f"{type(error).__name__}: {error}"))
            else:
                self._set_results(batch, results)

    async def _results_of(self, batch: list[RequestPart]) -> Arrays:
        """The outputs of a batch. If it is cancelled its requests still get their results."""
        arguments = [part.arrays for part in batch], _end_of(batch)
        if self.servable.is_brief:
            return self._run(*arguments)
        running = asyncio.get_running_loop().run_in_executor(self._thread, self._run, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                self._set_results(batch, await running)
            raise

    async def _gather(self) -> None:
        """Waits for more requests while the batch has space and the window has not passed."""
        if self._batch_size in (None, 1) or self._window <= 0:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + self._window
        while (rows := sum(part.rows for part in self._waiting)) < self._expected and (left := end - loop.time()) > 0:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), left)
        self._expected = max(1, min(rows, self._batch_size))
        self._arrived.set()

    def _next_batch(self) -> list[RequestPart]:
        """The first waiting parts that fit into a batch; those of cancelled requests are dropped."""
        batch: list[RequestPart] = []
        rows = 0
        while self._waiting:
            part = self._waiting[0]
            if part.results.done():
                self._waiting.popleft()
                continue
            if batch and (self._batch_size is None or rows + part.rows > self._batch_size):
                break
            batch.append(self._waiting.popleft())
            rows += part.rows
        return batch

    def _run(self, parts: list[Arrays], end: float | None) -> Arrays:
        columns = list(zip(*parts, strict=True))
        arrays = [column[0] if len(column) == 1 else np.concatenate(column) for column in columns]
        if self._batch_size is not None:
            arrays = [_filled(array, self._batch_size) for array in arrays]
        return self.servable.run(arrays, None if end is None else max(end - time.monotonic(), LEAST_SECONDS))

    def _set_results(self, batch: list[RequestPart], results: Arrays) -> None:
        start = 0
        for part in batch:
            end = start + part.rows
            if not part.results.done():
                part.results.set_result(
                    results if self._batch_size is None else [result[start:end] for result in results]
                )
            start = end


def _end_of(batch: list[RequestPart]) -> float | None:
    """The latest deadline of a batch's requests; None if one has none."""
    ends = [part.end for part in batch if part.end is not None]
    return max(ends) if len(ends) == len(batch) else None


def _filled(array: np.ndarray, rows: int) -> np.ndarray:
    """The array padded to `rows` rows with its last row, which the program certainly accepts."""
    missing = rows - len(array)
    return array if missing == 0 else np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
