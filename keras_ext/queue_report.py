"""Waits of a run at its queues: of the engine for data, and for callbacks to take results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from keras_ext.types import KerasModel

READY_SECONDS = 1e-3
"""Data that take longer to get were not ready."""


@dataclass
class QueueReport:
    """Queue waits of one `fit`, `evaluate` or `predict`, except for the data that Keras 3 fetches in `predict`."""

    executions: int = 0
    """Number of times data were fetched for the engine."""
    infeed_waits: int = 0
    """Number of times the data were not ready."""
    infeed_seconds: float = 0.0
    """Seconds that fetching data took in all."""
    outfeed_waits: int = 0
    """Number of times the engine waited because callbacks had not taken the results of `buffer_depth` steps."""

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Counts and times one fetch of data."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.executions += 1
        self.infeed_waits += seconds > READY_SECONDS
        self.infeed_seconds += seconds


def queue_report(model: KerasModel, mode: str = "train") -> QueueReport:
    """The report of the model's last `fit` ("train"), `evaluate` ("test") or `predict`; an empty one before that."""
    return vars(model).setdefault("_ipu_queue_reports", {}).setdefault(mode, QueueReport())


def begin_report(model: KerasModel, mode: str) -> None:
    """Begins an empty report."""
    vars(model).setdefault("_ipu_queue_reports", {})[mode] = QueueReport()
