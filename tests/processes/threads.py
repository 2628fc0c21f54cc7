"""A transport between the threads of one process: each stands for a process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from engine.errors import ProcessError
from ipu._internal.processes.transport import FOLDS, Operation, Transport
from tests.interrupting import PATIENCE_SECONDS


class ThreadTransport(Transport):
    """A transport between `size` threads that share a table."""

    def __init__(self, rank: int, size: int, table: list[Any], barrier: threading.Barrier) -> None:
        super().__init__()
        self.rank, self.size, self._table, self._barrier = rank, size, table, barrier
        self.calls: list[str] = []

    def _exchanged(self, value: Any) -> list[Any]:
        self._table[self.rank] = value
        self._barrier.wait(PATIENCE_SECONDS)
        every = list(self._table)
        self._barrier.wait(PATIENCE_SECONDS)
        return every

    def _agree(self, call: str) -> None:
        self.calls.append(call)
        if len(set(self._exchanged(call))) > 1:
            raise ProcessError("; ".join(map(str, self._table)))

    def _all_reduce(self, array: np.ndarray, operation: Operation) -> np.ndarray:
        if array.dtype.itemsize == 2:
            return self._reduced_by_blocks(array, operation)
        return FOLDS[operation](np.stack(self._exchanged(array.copy())), axis=0).astype(array.dtype)

    def _all_to_all(self, blocks: np.ndarray) -> np.ndarray:
        return np.stack([each[self.rank] for each in self._exchanged(blocks)])

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        return np.stack(self._exchanged(array.copy()))

    def _broadcast(self, array: np.ndarray, root: int) -> np.ndarray:
        return self._exchanged(array.copy())[root]

    def close(self) -> None:
        """Ends nothing."""


def in_threads(count: int, work: Callable[[ThreadTransport], Any]) -> list[Any]:
    """The results of `work` in `count` threads, each called with a transport to the others."""
    table, barrier = [None] * count, threading.Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda rank: work(ThreadTransport(rank, count, table, barrier)), range(count)))
