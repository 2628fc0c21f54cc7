"""Fills the ring of an infeed from a tf.data data set, in its own thread, up to a given depth ahead."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_dataset_ops

from engine.ir.shape import Shape
from ipu._internal.config.system import current_system
from ipu._internal.queues.batching import is_harmless

if TYPE_CHECKING:
    from engine.runtime.rings import InfeedRing

FIRST_NAP, LONGEST_NAP = 0.00005, 0.002
AT_ONCE = 32
"""Maximum number of elements batched before they go into the ring: by tf.data if that has no visible effect."""
SMALL_BYTES, MOST_BYTES_AT_ONCE = 1 << 14, 1 << 19
"""Maximum bytes of an element that is batched here, and of a batch of tf.data."""
LONGEST_BATCHING = 0.005
"""Seconds after which elements do not wait for more of a data set that delays. Chosen by hand."""
MOST_BYTES_AHEAD, MOST_AHEAD = 1 << 20, 128


def automatic_depth(shapes: Sequence[Shape], least: int) -> int:
    """Default number of elements to read ahead: at least `least`, more where they are small."""
    return max(least, min(MOST_AHEAD, MOST_BYTES_AHEAD // max(sum(shape.bytes for shape in shapes), 1)))


class Feeder:
    """Feeds the elements of `dataset`, in order, to programs of one number of replicas; the first starts the thread.

    With IPUConfig.optimizations.prefetch_data_streams it reads ahead; otherwise an element when a program waits.
    """

    def __init__(self, dataset: tf.data.Dataset, shapes: Sequence[Shape], depth: int) -> None:
        size = sum(shape.bytes for shape in shapes)
        most = max(1, min(AT_ONCE, depth, MOST_BYTES_AT_ONCE // max(size, 1)))
        self._ahead = current_system().config.optimizations.prefetch_data_streams
        self._together = most if self._ahead and is_harmless(dataset) else 1
        with tf.device("/device:CPU:0"), context.eager_mode():
            # Not iter(dataset), which gives an IPUOwnedIterator in the strategy's scope.
            self._iterator = iterator_ops.OwnedIterator(
                dataset.batch(self._together) if self._together > 1 else dataset
            )
        self._shapes, self._depth = shapes, depth
        self._running = threading.Event()
        self._thread: threading.Thread | None = None
        self.ring: InfeedRing | None = None
        self.replicas = 0
        _alive.add(self)

    def begin(self, replicas: int) -> InfeedRing:
        """Starts feeding for a program of `replicas` replicas; returns the ring."""
        if self.ring is None:
            # The engine loads Numba, which takes long: imported only for a program.
            from engine.runtime.rings import InfeedRing

            self.replicas = replicas
            self.ring = InfeedRing(self._shapes, self._depth * replicas)
            work = _Work(self._iterator, self._together, self.ring, self._running, self._ahead)
            self._thread = threading.Thread(target=work.run, name="ipu-infeed", daemon=True)
            self._thread.start()
        self._running.set()
        return self.ring

    def end(self) -> None:
        """The program has ended: the thread fills the ring and waits."""
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


class _Work:
    """The thread's work; it has no reference to the Feeder, which may be collected meanwhile."""

    def __init__(self, iterator: Any, together: int, ring: InfeedRing, running: threading.Event, ahead: bool) -> None:
        self._iterator, self._batched, self._ring, self._running = iterator, together > 1, ring, running
        self._ahead, self._served = ahead, 0
        self._several = AT_ONCE if ring.row_bytes <= SMALL_BYTES and not self._batched and ahead else 1
        self._rows: list[list[np.ndarray]] = []
        self._lock = threading.Lock()  # of `_rows`, and of what the ring is given

    def run(self) -> None:
        """Feeds until the ring is closed, at the end of the data set or by `stop`."""
        if self._several > 1:
            threading.Thread(target=self._flush_before_blocked, name="ipu-infeed-flush", daemon=True).start()
        with context.eager_mode():  # also in programs that have switched it off
            self._feed()

    def _feed(self) -> None:
        while self._wait_for_space():
            error: BaseException | None = None
            for _ in range(min(self._ring.space(), self._several)):
                try:
                    row = self._next()
                    with self._lock:
                        self._rows.append(row)
                except tf.errors.OutOfRangeError:
                    error = _end_of_dataset()
                except BaseException as raised:
                    error = raised
                if error is not None or self._starving():
                    break
            self._flush()
            if error is not None:
                self._ring.close(error)

    def _flush_before_blocked(self) -> None:
        """Gives a waiting program the elements read so far when the data set keeps the next one back."""
        seen: list[list[np.ndarray]] = []
        while not self._ring.closed:
            self._running.wait()
            time.sleep(LONGEST_BATCHING)
            rows = list(self._rows)
            if rows and len(rows) == len(seen) and rows[0] is seen[0] and self._starving():
                self._flush()
            seen = rows

    def _flush(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
            if rows:
                self._put(rows)

    def _put(self, rows: list[list[np.ndarray]]) -> None:
        leaves = rows[0] if self._batched else [leaf[None] for leaf in rows[0]]
        if len(rows) > 1:
            leaves = [np.stack(column) for column in zip(*rows, strict=True)]
        try:
            self._ring.put(leaves)
        except Exception as error:
            # A ring closed meanwhile stays closed; otherwise the program's run raises this.
            self._ring.close(error)

    def _next(self) -> list[np.ndarray]:
        iterator = self._iterator
        tensors = gen_dataset_ops.iterator_get_next(
            iterator._iterator_resource,
            output_types=iterator._flat_output_types,
            output_shapes=iterator._flat_output_shapes,
        )
        return [tensor._numpy() for tensor in tensors]

    def _starving(self) -> bool:
        """Whether a program has nothing left to take while elements are still being batched."""
        return self._several > 1 and self._running.is_set() and self._ring.available() == 0

    def _wait_for_space(self) -> bool:
        """Waits until the ring has space; False if it was closed.

        A full ring of a running program is refilled when half of it is free: fewer wake-ups, no less data ahead.
        """
        if not self._ahead:
            return self._wait_for_need()
        nap, wanted = FIRST_NAP, 1
        while not self._ring.closed and self._ring.space() < wanted:
            if self._running.is_set():
                wanted = (self._ring.slots + 1) // 2
                time.sleep(nap)
                nap = min(2 * nap, LONGEST_NAP)
            elif self._ring.space():
                break
            else:
                self._running.wait()
                nap = FIRST_NAP
        return not self._ring.closed

    def _wait_for_need(self) -> bool:
        """Waits until a program waits for an element; False if the ring was closed."""
        while not self._ring.closed:
            waits = self._ring.device_waits
            if waits != self._served:
                self._served = waits
                return True
            self._running.wait()
            time.sleep(FIRST_NAP)
        return False


def _end_of_dataset() -> tf.errors.OutOfRangeError:
    return tf.errors.OutOfRangeError(
        None,
        None,
        "Expected the dataset of the infeed queue to have an element for each iteration. Received: its end. "
        "Call repeat() on it, or run fewer iterations, and initialize the queue anew.",
    )


_alive: weakref.WeakSet[Feeder] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stops all threads: one inside TensorFlow during the interpreter's shutdown would crash."""
    feeders = list(_alive)
    for feeder in feeders:
        feeder.stop()
    for feeder in feeders:
        feeder.join(1.0)
