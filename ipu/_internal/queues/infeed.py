"""The host's endpoint of an infeed: from its initialisation to its deletion."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from engine.errors import ConfigurationError
from engine.ir.device_operations import QueueSignature
from engine.ir.shape import Shape
from ipu._internal.queues.feeder import Feeder
from ipu._internal.queues.registry import forget, register, remember
from ipu._internal.queues.row_elements import RowElements, row_elements
from ipu._internal.queues.synthetic import SyntheticFeeder, is_synthetic

if TYPE_CHECKING:
    from engine.runtime.rings import InfeedRing


class InfeedEndpoint:
    """Elements of `dataset` with leaves of `shapes`, read up to `depth` elements ahead for each replica."""

    def __init__(self, name: str | None, dataset: tf.data.Dataset, shapes: Sequence[Shape], depth: int) -> None:
        self._dataset, self._shapes, self._depth = dataset, tuple(shapes), depth
        self._feeder: Feeder | SyntheticFeeder | None = None
        self._finalizer: Any = None
        self._running = 0
        self._lock = threading.Lock()
        self.name = register(self, "infeed", name)

    def restart(self, dataset: tf.data.Dataset, rows: RowElements | None) -> None:
        """Starts with the first element of a data set of the same structure, also if feeding has started already.

        `rows` are its elements if they consist of rows of arrays.
        Raises FailedPreconditionError while a program runs.
        """
        with self._lock:
            self._refuse_while_running("initializer")
            self._stop()
            self._dataset = dataset
        self.initialise(rows)

    def initialise(self, rows: RowElements | None = None) -> None:
        """Starts with the first element of the data set. Raises ConfigurationError if it has started already."""
        with self._lock:
            if self._feeder is not None:
                raise ConfigurationError(
                    f"Expected initializer of infeed queue {self.name!r} to be evaluated once. Received: a second "
                    f"time. To start again from the first element, evaluate infeed_queue.deleter first."
                )
            remember(self)
            if is_synthetic("infeed"):
                self._feeder = SyntheticFeeder(self._shapes)
            else:
                rows = rows or row_elements(self._dataset, self._shapes)
                self._feeder = Feeder(self._dataset, rows, self._shapes, self._depth)
            self._finalizer = weakref.finalize(self, self._feeder.stop)

    def delete(self) -> None:
        """Ends the feeding. Raises NotFoundError before `initialise`, FailedPreconditionError while a program runs."""
        with self._lock:
            if self._feeder is None:
                raise tf.errors.NotFoundError(
                    None, None, f"Infeed with id='{self.name}' not found. Initialize the queue before its deletion."
                )
            self._refuse_while_running("delete")
            self._stop()
            forget(self)

    def begin(self, signature: QueueSignature, replicas: int, sequential: int = 1) -> InfeedRing:
        """The ring, filled from now on; replicas that run one after the other take elements in this order.

        Raises FailedPreconditionError before `initialise`, for another number of replicas, or while a program runs.
        """
        with self._lock:
            feeder = self._feeder
            if feeder is None:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    f"Expected infeed queue {self.name!r} to be initialized before the program runs. Received: it is "
                    f"not. Did you initialize the infeed_queue? Evaluate infeed_queue.initializer first.",
                )
            if feeder.replicas not in (0, replicas):
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    f"Expected all programs with infeed queue {self.name!r} to have {feeder.replicas} replicas. "
                    f"Received: one of {replicas}. Make another queue, or delete this one and initialize it again.",
                )
            if self._running:
                raise tf.errors.FailedPreconditionError(
                    None, None, f"Expected one program at a time with infeed queue {self.name!r}. Received: a second."
                )
            ring = feeder.begin(replicas)
            self._running += 1
            return ring

    def end(self) -> None:
        """Notes that the program has ended."""
        with self._lock:
            self._running -= 1
            if self._feeder is not None:
                self._feeder.end()

    def _stop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._feeder = self._finalizer = None

    def _refuse_while_running(self, what: str) -> None:
        if self._running:
            raise tf.errors.FailedPreconditionError(
                None, None, f"Expected no program to use infeed queue {self.name!r}. Received: {what} while one runs."
            )
