"""Feeds an infeed in a thread of its own, up to a given depth ahead."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from engine.errors import InternalError
from engine.ir.shape import Shape
from ipu._internal.config.system import current_system
from ipu._internal.queues.dataset_elements import DatasetElements
from ipu._internal.queues.feeding import FeederWork
from ipu._internal.queues.row_elements import RowElements

if TYPE_CHECKING:
    from engine.runtime.rings import InfeedRing

MOST_BYTES_AHEAD, MOST_AHEAD = 1 << 20, 128


def automatic_depth(shapes: Sequence[Shape], least: int) -> int:
    """Default number of elements to read ahead: at least `least`, more where they are small."""
    return max(least, min(MOST_AHEAD, MOST_BYTES_AHEAD // max(sum(shape.bytes for shape in shapes), 1)))


class Feeder:
    """Feeds the elements of `dataset`, in order, to programs of one number of replicas; the first starts the thread.

    With IPUConfig.optimizations.prefetch_data_streams it reads ahead, else it reads when a program waits.
    `rows` are the elements if they consist of rows of arrays: tf.data is not used then.
    """

    def __init__(self, dataset: tf.data.Dataset, rows: RowElements | None, shapes: Sequence[Shape], depth: int) -> None:
        self._ahead = current_system().config.optimizations.prefetch_data_streams
        self._elements = rows or DatasetElements(dataset, shapes, depth, self._ahead)
        self._depth = depth
        self._running = threading.Event()
        self._thread: threading.Thread | None = None
        self._work: FeederWork | None = None
        self.ring: InfeedRing | None = None
        self.replicas = 0
        _alive.add(self)

    def begin(self, replicas: int) -> InfeedRing:
        """Starts feeding for a program of `replicas` replicas; returns the ring."""
        if self.ring is None:
            self.replicas = replicas
            self.ring = self._elements.new_ring(self._depth * replicas)
            self._work = self._elements.feeding(self.ring, self._running, self._ahead)
            self._thread = threading.Thread(target=self._work.run, name="ipu-infeed", daemon=True)
            self._thread.start()
        self._raise_failure(self.ring)
        self._running.set()
        return self.ring

    def _raise_failure(self, ring: InfeedRing) -> None:
        """Raises the error that has ended the thread early: a program would wait for its elements for ever."""
        assert self._work is not None and self._thread is not None
        if self._work.failure is not None:
            raise self._work.failure
        if not self._thread.is_alive() and not ring.closed:
            raise InternalError(
                "Expected the thread of an infeed queue to run. Received: a thread that has ended, as in a fork. "
                "Evaluate the queue's deleter and initializer in this process, too."
            )

    def end(self) -> None:
        """Notes that the program has ended: the thread fills the ring and waits."""
        self._running.clear()

    def stop(self) -> None:
        """Ends the thread; programs that wait for elements fail."""
        if self.ring is not None:
            self.ring.close()
        self._running.set()
        _alive.discard(self)

    def join(self, seconds: float) -> None:
        """Waits up to `seconds` for the thread's end, which a data set may delay."""
        if self._thread is not None:
            self._thread.join(seconds)


_alive: weakref.WeakSet[Feeder] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stops all threads: one inside TensorFlow during the interpreter's shutdown would crash."""
    feeders = list(_alive)
    for feeder in feeders:
        feeder.stop()
    for feeder in feeders:
        feeder.join(1.0)
